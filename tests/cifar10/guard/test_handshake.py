"""Whom a task takes for one of its own job, and whom it refuses: with TensorFlow's servers."""

import contextlib
import pathlib
from typing import Any, Optional
from unittest import mock

import grpc
import pytest
import tensorflow.compat.v1 as tf

from cifar10.cluster.resolve import resolve
from cifar10.cluster.spec import Cluster, Task, digest
from cifar10.config.train_config import TrainConfig
from cifar10.errors import ConfigError
from cifar10.guard import handshake, server
from cifar10.guard.handshake import Handshake, settings_that_must_match
from cifar10.guard.peers import Mismatch
from cifar10.guard.server import CHIEF, Registry, TaskIdentity
from cifar10.input.records import open_records
from cifar10_program import VERSION
from testbeds.ports import free_ports
from tests.cifar10 import record_files

MINE, OTHER = (digest("mine"), "here:/mine"), (digest("other"), "there:/other")
NOBODYS = ("", "")
Run = tuple[str, str]  # its key and its place


class Job:
    """A master, a worker and a ps; their servers are in this process."""

    def __init__(self, token: Optional[str] = None) -> None:
        self.jobs = {job: (f"127.0.0.1:{free_ports(1)[0]}",) for job in ("master", "worker", "ps")}
        self._token = token and digest(token)

    def task(self, job: str) -> Cluster:
        return Cluster(self.jobs, job, 0, False, "TF_CONFIG", token=self._token)

    def serve(self, job: str, run: Run = NOBODYS, introduces: bool = True, **settings: str) -> None:
        identity = TaskIdentity.of(self.task(job), *run, settings)
        with contextlib.ExitStack() as stack:
            if not introduces:
                stack.enter_context(mock.patch.object(Registry, "write"))
            server.start(self.task(job), tf.ConfigProto(), identity)

    def run_of(self, job: str = "ps") -> Run:
        """The run of the master that has claimed the task."""
        with contextlib.closing(Registry(self.task(job).own.target)) as registry:
            found = registry.read(CHIEF)
        return (found.run, found.output_dir) if found else NOBODYS

    def seen_by(self, job: str, run: Run = NOBODYS) -> Handshake:
        """How a task sees the master and the ps while a session begins."""
        seen = self.looking(job, run)
        seen.claims = job == "master"
        return seen

    def looking(self, job: str, run: Run = NOBODYS, **settings: str) -> Handshake:
        """How a task sees them before its first session."""
        own = self.task(job)
        return Handshake(own, own.of("ps"), TaskIdentity.of(own, *run, settings))


def replace_master(monkeypatch: pytest.MonkeyPatch, job: Job) -> None:
    """From now on, another job's master answers; TensorFlow's servers cannot be stopped."""
    registry_of, other = handshake.registry_of, job.task("worker").master
    monkeypatch.setattr(
        handshake, "registry_of", lambda task: registry_of(other if task.job == "master" else task)
    )


def labelled(seen: Handshake, label: str) -> Task:
    (task,) = [task for task in seen.cluster.tasks if task.label == label]
    return task


def meets(seen: Handshake, label: str) -> bool:
    return seen.meet(labelled(seen, label))


def refused(seen: Handshake, label: str) -> str:
    with pytest.raises(ConfigError) as error:
        meets(seen, label)
    assert "\n" not in str(error.value)
    return str(error.value)


def test_a_worker_that_trains_otherwise_is_refused_and_its_master_says_the_same(monkeypatch):
    monkeypatch.setattr(handshake, "_ASKED_SECS", 0.0)
    job = Job()
    job.serve("master", MINE, batch="32", rate="0.1")
    job.serve("worker", batch="128", rate="0.2")
    (master,), (worker,) = job.jobs["master"], job.jobs["worker"]
    own = job.looking("worker", batch="128", rate="0.2")
    way_out = "start all trainers with the same program, settings and records"
    assert refused(own, "master/0") == (
        f"batch is 128 for worker/0, but 32 for master/0 ({master}); {way_out}"
    )
    own = job.looking("master", MINE, batch="32", rate="0.1")
    with pytest.raises(Mismatch) as unlike:  # It goes on, and waits for the right one.
        meets(own, "worker/0")
    line = f"batch is 32 for master/0, but 128 for worker/0 ({worker}); {way_out}"
    assert str(unlike.value) == line


def test_a_master_claims_a_ps_of_its_job_and_meets_it_again_when_it_has_started_again():
    job = Job()
    job.serve("ps")
    # A ps, which trains nothing, has to agree on nothing. Nothing is claimed before a session.
    assert meets(job.looking("master", MINE, batch="32"), "ps/0")
    assert job.run_of() == NOBODYS
    assert meets(job.seen_by("master", MINE), "ps/0")
    assert meets(job.seen_by("master", MINE), "ps/0")
    assert job.run_of() == MINE


def test_of_two_masters_with_one_cluster_the_second_is_refused_and_changes_nothing():
    job = Job()
    job.serve("ps")
    meets(job.seen_by("master", OTHER), "ps/0")
    (ps,) = job.jobs["ps"]
    assert refused(job.seen_by("master", MINE), "ps/0") == (
        f"ps/0 ({ps}) serves another run, that of there:/other, and not this task's, that of "
        "here:/mine; end that run first; if it has ended, or its files are gone, start ps/0 again; "
        "to continue it, give its --output-dir"
    )
    assert job.run_of() == OTHER


def test_a_ps_of_another_cluster_is_refused_before_it_is_claimed():
    job, other = Job(), Job()
    other.serve("ps")
    job.jobs["ps"] = other.jobs["ps"]
    theirs, ours = (f"master {served.jobs['master'][0]}; " for served in (other, job))
    refusal = refused(job.seen_by("master", MINE), "ps/0")
    assert refusal.startswith(
        f"ps/0 ({job.jobs['ps'][0]}) belongs to another job: it has the cluster {theirs}"
    )
    assert f", this task has the cluster {ours}" in refusal
    assert refusal.endswith(
        "; correct the address, or give all tasks of a job the same cluster and CIFAR10_JOB_TOKEN"
    )
    assert other.run_of() == NOBODYS


def test_another_task_at_the_address_is_named():
    with_token, same = Job("token"), Job("token")
    same.serve("worker")
    with_token.jobs["ps"] = same.jobs["worker"]
    (address,) = same.jobs["worker"]
    assert refused(with_token.seen_by("master", MINE), "ps/0") == (
        f"ps/0 ({address}) is worker/0 of this job; correct the addresses"
    )


def test_a_worker_uses_the_ps_that_its_master_has_claimed_and_no_other_masters():
    job, again = Job(), Job()
    for served in (job, again):
        served.serve("ps")
        served.serve("master", MINE)
    seen = job.seen_by("worker")
    assert meets(seen, "ps/0")  # No master has used it yet.
    assert meets(seen, "master/0")
    assert (seen.identity.run, seen.identity.output_dir) == MINE
    meets(job.seen_by("master", MINE), "ps/0")
    assert meets(seen, "ps/0")
    meets(again.seen_by("master", OTHER), "ps/0")
    seen = again.seen_by("worker")
    assert meets(seen, "master/0")
    assert "serves another run, that of there:/other" in refused(seen, "ps/0")


def test_a_worker_whose_master_began_another_run_asks_it_before_it_refuses_a_ps(monkeypatch):
    job, again = Job("token"), Job("token")
    job.serve("master", MINE)
    again.serve("master", OTHER)
    job.serve("ps")
    seen = job.seen_by("worker")
    assert meets(seen, "master/0")
    meets(job.seen_by("master", OTHER), "ps/0")
    replace_master(monkeypatch, again)
    assert meets(seen, "ps/0")
    assert (seen.identity.run, seen.identity.output_dir) == OTHER


def test_once_the_master_was_met_another_jobs_master_there_is_no_answer(monkeypatch):
    job, other = Job("mine"), Job("other")
    job.serve("master", MINE)
    other.serve("master", OTHER)
    seen = job.seen_by("worker")
    assert meets(seen, "master/0")
    replace_master(monkeypatch, other)
    assert not meets(seen, "master/0")
    assert (seen.identity.run, seen.identity.output_dir) == MINE
    refused(job.seen_by("worker"), "master/0")


def test_once_a_ps_was_met_another_jobs_ps_there_is_refused(monkeypatch):
    job, other = Job("mine"), Job("other")
    job.serve("ps")
    other.serve("ps")
    seen = job.seen_by("master", MINE)
    assert meets(seen, "ps/0")
    (ps,), registry_of = other.task("ps").of("ps"), handshake.registry_of
    monkeypatch.setattr(handshake, "registry_of", lambda _: registry_of(ps))
    assert "belongs to another job: " in refused(seen, "ps/0")
    assert other.run_of() == NOBODYS


def test_a_master_that_comes_back_with_other_settings_is_refused_by_its_old_worker(monkeypatch):
    monkeypatch.setattr(handshake, "_ASKED_SECS", 0.0)
    job, again = Job("token"), Job("token")
    job.serve("master", MINE, batch="32")
    again.serve("master", MINE, batch="64")
    seen = job.looking("worker", batch="32")
    assert meets(seen, "master/0")
    replace_master(monkeypatch, again)
    assert refused(seen, "master/0").startswith("batch is 32 for worker/0, but 64 for master/0 (")


def test_a_server_that_does_not_introduce_itself_counts_as_one_that_does_not_answer():
    job = Job()
    job.serve("ps", introduces=False)
    assert not meets(job.seen_by("master", MINE), "ps/0")


def test_a_server_of_another_program_is_refused():
    from concurrent import futures

    job = Job()
    other = grpc.server(futures.ThreadPoolExecutor(1))
    other.add_insecure_port(job.jobs["ps"][0])
    other.start()
    try:
        assert "is no task of this program (" in refused(job.seen_by("master", MINE), "ps/0")
    finally:
        other.stop(None).wait()


def known_by(token: str = "", **jobs: tuple[str, ...]) -> str:
    jobs = {"master": ("ip0:2222",), "worker": ("ip1:2222",), "ps": ("ip0:2223",), **jobs}
    return Cluster(
        jobs, "ps", 0, False, "TF_CONFIG", token=digest(token) if token else None
    ).known_by


def test_tasks_of_one_job_have_the_same_token_or_else_cluster():
    assert known_by() == "the cluster master ip0:2222; worker ip1:2222; ps ip0:2223"
    assert known_by(ps=("IP0:2223",)) == known_by()
    for other in ({"master": ("ip9:2222",)}, {"worker": ("ip1:2222", "ip2:2222")}):
        assert known_by(**other) != known_by()
    assert known_by("one") == known_by("one", ps=("ip9:1",))
    assert known_by("one") == "the job token 7692c3ad3540bb80... (SHA-256)"
    assert known_by("two") != known_by("one")


@pytest.mark.parametrize(
    "text",
    ["master/0", "[]", "5", '{"role": "ps/0"}', "[" * 100_000]
    + [
        f'{{"role": "ps/0", "job": "", {rest}}}'
        for rest in ('"run": 5', '"must_match": {"a": 5}', '"must_match": []', '"other": ""')
    ],
    ids=lambda text: text[:50],
)
def test_what_is_no_identity_is_refused(text):
    with pytest.raises(ValueError, match=".") as error:
        TaskIdentity.from_text(text)
    assert len(str(error.value)) < 1000


def test_a_token_is_known_only_by_its_sha_256():
    tf_config = (
        '{"cluster": {"master": ["a:1"], "ps": ["a:2"]}, "task": {"type": "ps", "index": 0}}'
    )
    secret = "a-token-of-this-test"
    found = resolve(TrainConfig(), {"TF_CONFIG": tf_config, "CIFAR10_JOB_TOKEN": f" {secret}\n"})
    assert isinstance(found, Cluster)
    assert found.token == digest(secret)
    assert secret not in repr(found) + repr(TaskIdentity.of(found))


STRANGER = """
import sys
import tensorflow.compat.v1 as tf
from cifar10.guard import server
from cifar10.cluster.spec import Cluster

tf.disable_eager_execution()
master, ps = sys.argv[1:]
jobs = {"master": (master,), "ps": (ps,)}
serving = server.start(Cluster(jobs, "ps", 0, False, "TF_CONFIG"), tf.ConfigProto())
weights = tf.get_variable("weights", initializer=1.0, use_resource=True)
port = ps.rpartition(":")[2]
for name in ("127.0.0.1", "127.0.0.2", "[::1]"):
    config = tf.ConfigProto(device_filters=["/job:ps"])
    with tf.Session(f"grpc://{name}:{port}", config=config) as session:
        session.run(weights.initializer)
        print(name, session.run(weights.assign_add(41.0)))
"""


def test_whoever_reaches_a_server_at_any_address_of_its_host_can_change_what_it_holds(forks):
    """This is no promise, but why docs/launch.md asks for a firewall."""
    ended = forks.run_code(STRANGER, *(f"127.0.0.1:{port}" for port in free_ports(2)))
    assert ended.stdout.splitlines() == ["127.0.0.1 42.0", "127.0.0.2 42.0", "[::1] 42.0"]


def test_trainers_agree_on_what_decides_a_step_and_not_on_their_machines(tutorial_data, tmp_path):
    place: pathlib.Path = tmp_path / "data"
    record_files.write_numbered(place, "train", 20)
    records, others = open_records(str(tutorial_data)), open_records(str(place))
    own = settings_that_must_match(TrainConfig(model="mlp", num_towers=2), records)
    settings: dict[str, Any] = {"sync": False, "hidden_units": 50, "seed": 7, "precision": "bf16"}
    other = settings_that_must_match(
        TrainConfig(model="mlp", output_dir="elsewhere", **settings), others
    )
    unlike = {key: other[key] for key in own if own[key] != other[key]}
    assert unlike.pop("the training records")
    bf16 = {"--precision": "bf16"}
    assert unlike == {"--sync": "False", "--hidden-units": "50", "--seed": "7", **bf16}


def test_only_code_that_decides_a_step_must_match(tutorial_data, tmp_path, monkeypatch):
    def program() -> str:
        return settings_that_must_match(TrainConfig(), records)["the program"]

    records, root = open_records(str(tutorial_data)), tmp_path / "cifar10"
    for name in ("guard/handshake.py", "step/model_fn.py", "report/page.py"):
        (root / name).parent.mkdir(parents=True)
        (root / name).write_text("")
    monkeypatch.setattr(handshake, "__file__", str(root / "guard/handshake.py"))
    before = program()
    assert before.startswith(f"version {VERSION}, ")
    (root / "step/.#model_fn.py").symlink_to("me@here.1234:5")  # an editor's lock
    (root / "step/.model_fn.py").write_text("1")
    (root / "report/page.py").write_text("1")
    assert program() == before
    (root / "step/model_fn.py").write_text("1")
    assert program() != before
    after = program()
    monkeypatch.setattr(handshake, "VERSION", "9.9")
    assert program() == after.replace(VERSION, "9.9")
