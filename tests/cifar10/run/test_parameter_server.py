"""A task that only serves: whom it waits for, and when it ends. Its server is real."""

import contextlib
import dataclasses
import signal
import threading
from typing import Any

import pytest

from cifar10.cluster.spec import Cluster, Task, digest
from cifar10.config.train_config import TrainConfig
from cifar10.errors import Stopped, TrainingError
from cifar10.guard import peers, server
from cifar10.guard.handshake import Handshake, tell_end
from cifar10.guard.peers import Peers
from cifar10.guard.server import NoAnswer, TaskIdentity, registry_of
from cifar10.host.process import StopRequest
from cifar10.output import run_file
from cifar10.run import parameter_server
from testbeds.ports import free_ports
from tests.cifar10.answering import answering, wait_until

WAIT_SECS = 60.0
QUIET_SECS = 0.3  # for what must not happen; it listens twenty times a second
NEVER_SECS = 1e6


class Job:
    """A master, a worker and a parameter server; a test plays the trainers."""

    def __init__(self) -> None:
        self.ports = dict(zip(("master", "worker", "ps"), free_ports(3)))
        self._jobs = {job: (f"127.0.0.1:{port}",) for job, port in self.ports.items()}
        self.stop = StopRequest()
        self.peers: list[Peers] = []

    def task(self, job: str) -> Cluster:
        return Cluster(self._jobs, job, 0, has_evaluator=False, source="TF_CONFIG")

    def answering(self, job: str) -> contextlib.AbstractContextManager[str]:
        """A server at the task's address, which is all that others look for."""
        return answering(port=self.ports[job])

    def tell(self, serving: str = "ps") -> None:
        """Tells the task that serves that the master has ended, as a master does."""
        (task,) = self.task("ps").of(serving)
        introduced(task)
        tell_end([task], TaskIdentity.of(self.task("master")))


def introduced(task: Task) -> None:
    """Waits until a task says who it is, somewhat after its server answers; before, none hears."""

    def has_said() -> bool:
        with contextlib.suppress(NoAnswer), registry_of(task) as registry:
            return registry.read(server.TASK) is not None
        return False

    wait_until(has_said)


class Served:
    """`serve` in a thread, and how it ended."""

    def __init__(self, job: Job, task: str = "ps", **settings: Any) -> None:
        self._error: BaseException | None = None
        self._job = job
        config = TrainConfig(cluster_timeout=settings.pop("timeout", 300.0), **settings)

        def run() -> None:
            try:
                parameter_server.serve(config, job.task(task), job.stop)
            except BaseException as error:  # Raised in the test's own thread.
                self._error = error

        self._thread = threading.Thread(target=run, daemon=True)
        self._thread.start()

    def sees(self, label: str) -> None:
        """Waits until it has seen that a trainer answers."""
        (task,) = [task for task in self._job.task("ps").tasks if task.label == label]
        wait_until(lambda: bool(self._job.peers) and self._job.peers[-1].is_here(task))

    @property
    def goes_on(self) -> bool:
        self._thread.join(QUIET_SECS)
        return self._thread.is_alive()

    def ended(self) -> None:
        """Waits for its end; raises what it raised."""
        self._thread.join(WAIT_SECS)
        assert not self._thread.is_alive(), "it still serves"
        if self._error:
            raise self._error


@pytest.fixture
def job(monkeypatch):
    # The pools of the tests' own process have their sizes already.
    monkeypatch.setattr(parameter_server, "use_devices", lambda *devices: None)
    for module, name in ((parameter_server, "_LISTEN_SECS"), (peers, "_PERIOD_SECS")):
        monkeypatch.setattr(module, name, 0.05)
    # The test's servers answer, but say nothing of their job.
    monkeypatch.setattr(Handshake, "meet", lambda self, task: True)
    made = Job()

    def noted(*arguments: Any) -> Peers:
        made.peers.append(Peers(*arguments))
        return made.peers[-1]

    monkeypatch.setattr(parameter_server, "Peers", noted)
    return made


def test_a_parameter_server_ends_once_the_master_has_told_of_its_end(job, capsys):
    served = Served(job)
    assert served.goes_on
    job.tell()
    served.ended()
    assert capsys.readouterr().out.splitlines() == [
        f"ps/0 serves at 127.0.0.1:{job.ports['ps']}",
        "ps/0 ends: training is over",
    ]


def test_after_the_masters_end_a_trainer_that_is_here_has_its_grace(job, monkeypatch):
    monkeypatch.setattr(parameter_server, "_GRACE_SECS", NEVER_SECS)
    with job.answering("worker"):
        served = Served(job)
        served.sees("worker/0")
        job.tell()
        assert served.goes_on
        monkeypatch.setattr(parameter_server, "_GRACE_SECS", 0.0)
        served.ended()


def test_a_master_that_stays_away_is_named(job):
    served = Served(job, timeout=0.5)
    address = f"127.0.0.1:{job.ports['master']}"
    with pytest.raises(TrainingError) as failed:
        served.ended()
    assert str(failed.value).startswith(
        f"master/0 ({address}) has not answered for 0.5 s (--cluster-timeout)"
    )


def test_a_signal_leaves_it_to_the_master_as_long_as_that_is_here(job):
    with job.answering("master"):
        served = Served(job)
        served.sees("master/0")
        job.stop._note(signal.SIGTERM)
        assert served.goes_on
    with pytest.raises(Stopped):
        served.ended()


def test_a_worker_of_an_in_graph_cluster_waits_for_the_master_alone(job, monkeypatch):
    # It is a worker itself: there is no other trainer than the master.
    monkeypatch.setattr(parameter_server, "_GRACE_SECS", NEVER_SECS)
    served = Served(job, "worker", replication="in-graph", model="mlp", num_gpus=0)
    job.tell(serving="worker")
    served.ended()


@pytest.mark.parametrize(("host", "threads"), [("here", 1), ("elsewhere", 0)])
def test_a_parameter_server_leaves_gpus_and_cores_to_the_trainers_of_its_host(host, threads):
    jobs = {"master": ("here:1",), "ps": (f"{host}:2",)}
    ps = Cluster(jobs, "ps", 0, has_evaluator=False, source="TF_CONFIG")
    config, _ = parameter_server._plan(TrainConfig(), ps)
    assert dict(config.device_count) == {"GPU": 0}
    assert config.intra_op_parallelism_threads == threads
    assert config.inter_op_parallelism_threads == threads


def test_only_the_end_of_this_job_and_of_the_run_that_uses_the_task_is_heard(job):
    served, (task,) = Served(job), job.task("ps").of("ps")
    introduced(task)
    own = TaskIdentity.of(job.task("master"), digest("ours"), "here:/ours")
    with registry_of(task) as registry:
        registry.write(server.CHIEF, own)
    for wrong in (
        dataclasses.replace(own, job="the cluster master other:1"),
        dataclasses.replace(own, run=digest("theirs")),
        dataclasses.replace(own, run=""),
    ):
        tell_end([task], wrong)
    assert served.goes_on
    tell_end([task], own)
    served.ended()


def test_a_task_that_is_started_after_the_end_ends_if_it_sees_the_output_folder(job, tmp_path):
    run_file.write_training(str(tmp_path), True, 100, "completed")
    Served(job, timeout=0.5, output_dir=str(tmp_path)).ended()
