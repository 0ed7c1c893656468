"""TF_CONFIG and the flags: every shape that platforms write, and every mistake in them."""

import json
from typing import Any, Optional

import pytest

from cifar10.cluster.resolve import notes, resolve
from cifar10.cluster.spec import Cluster
from cifar10.config.flags import parse
from cifar10.config.train_config import TrainConfig
from cifar10.errors import ConfigError

TWO_HOSTS = {"master": ["ip0:2222"], "ps": ["ip0:2223", "ip1:2223"], "worker": ["ip1:2222"]}
NO_CHIEF = {"worker": ["a:1", "b:1", "c:1"], "ps": ["d:1"]}
BY_FLAGS = {"ps_hosts": "d:1", "worker_hosts": "a:1,b:1,c:1"}


def task(task_type: str, index: Any = 0) -> dict[str, Any]:
    return {"type": task_type, "index": index}


def environ(cluster: Any, this_task: Any, **more: Any) -> dict[str, str]:
    return {"TF_CONFIG": json.dumps({"cluster": cluster, "task": this_task, **more})}


def read(cluster: Any, this_task: Any, **settings: Any) -> Cluster:
    """The cluster of that TF_CONFIG."""
    found = resolve(TrainConfig(**settings), environ(cluster, this_task))
    assert found is not None
    return found


def refusal(variables: dict[str, str], **settings: Any) -> str:
    with pytest.raises(ConfigError) as refused:
        resolve(TrainConfig(**settings), variables)
    assert "\n" not in str(refused.value)
    return str(refused.value)


@pytest.mark.parametrize(
    "text",
    [
        "",
        '{"cluster": {}, "task": {}, "environment": "cloud"}',
        '{"cluster": null, "task": null}',
        '{"cluster": {"worker": [], "ps": []}}',
        '{"cluster": {}, "task": {"type": "master", "index": 0, "trial": "1"}}',
        '{"task": {"type": "worker", "index": 0}}',
    ],
)
def test_an_empty_tf_config_means_no_cluster(text):
    assert resolve(TrainConfig(), {"TF_CONFIG": text}) is None


_EVALUATED = {"chief": ["a:1"], "worker": ["b:1"], "ps": ["c:1"], "evaluator": ["d:1"]}
_JOBS = {"master": ("a:1",), "worker": ("b:1",), "ps": ("c:1",)}


@pytest.mark.parametrize(
    ("cluster", "this_task", "jobs", "own"),
    [
        # The tutorial's.
        (
            TWO_HOSTS,
            task("worker"),
            {job: tuple(addresses) for job, addresses in TWO_HOSTS.items()},
            ("worker", 0, "worker/0", "ip1:2222"),
        ),
        # A task may use one of the words, and the cluster the other.
        ({"chief": ["a:1"]}, task("master"), {"master": ("a:1",)}, ("master", 0, "chief/0", "a:1")),
        # Kubeflow lists the evaluator, Estimator does not.
        (_EVALUATED, task("evaluator"), _JOBS, ("evaluator", 0, "evaluator/0", "")),
        (_EVALUATED, task("chief"), _JOBS, ("master", 0, "chief/0", "a:1")),
        ({"chief": ["a:1"]}, task("evaluator", "0"), {"master": ("a:1",)}, ("evaluator", 0)),
        # Without a chief, worker 0 is the master, and all keep their names.
        (NO_CHIEF, task("worker", 0), None, ("master", 0, "worker/0", "a:1")),
        (NO_CHIEF, task("worker", 2), None, ("worker", 1, "worker/2", "c:1")),
        (NO_CHIEF, task("ps"), None, ("ps", 0, "ps/0", "d:1")),
        ({"worker": ["a:1"]}, task("worker"), {"master": ("a:1",)}, ("master", 0, "worker/0")),
        # An empty list means that there is no such job.
        (
            {"chief": [], "master": ["a:1"], "worker": [], "ps": None, "evaluator": []},
            task("master"),
            {"master": ("a:1",)},
            ("master", 0, "master/0"),
        ),
    ],
    ids=str,
)
def test_a_platforms_cluster_and_task_are_understood(cluster, this_task, jobs, own):
    found = read(cluster, this_task)
    expected = jobs or {"master": ("a:1",), "worker": ("b:1", "c:1"), "ps": ("d:1",)}
    assert found.jobs == expected
    parts = (found.own.job, found.own.index, found.own.label, found.own.address)
    assert parts[: len(own)] == own
    assert found.has_evaluator == (
        bool(cluster.get("evaluator")) or this_task["type"] == "evaluator"
    )
    assert len(found.tasks) == sum(map(len, expected.values()))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{'cluster': {}}", "\"{'cluster': {}}\" is not JSON, Expecting property name"),
        ('{"a":' * 100_000, '\'{"a":{"a":'),
        ('{"cluster": []}', 'cluster must be an object, got []; write {"cluster"'),
        ('{"cluster": {}, "task": "worker"}', 'task must be an object, got "worker"'),
    ],
    ids=lambda text: text[:20],
)
def test_what_is_no_tf_config_is_refused_with_an_example(text, message):
    found = refusal({"TF_CONFIG": text})
    assert found.startswith(message)
    assert found.endswith(
        'write {"cluster": {"master": ["ip0:2222"]}, "task": {"type": "master", "index": 0}} '
        "(from TF_CONFIG)"
    )


MASTER = task("master")


@pytest.mark.parametrize(
    ("cluster", "this_task", "message"),
    [
        ({}, task("ps"), "this task is ps/0, but there is no cluster; list its addresses (in clu"),
        (
            {"chief": ["a:1"], "master": ["b:1"]},
            MASTER,
            "a cluster has one chief (or master), got chief a:1, master b:1; leave the others out",
        ),
        (
            NO_CHIEF,
            task("worker", 3),
            "this task is worker/3, which is not in the cluster: worker a:1, b:1, c:1; ps d:1; ",
        ),
        (TWO_HOSTS, task("boss"), "the task's type must be one of master, chief, worker, ps, eva"),
        ({"master": ["a:1"], "gpu": ["b:1"]}, MASTER, "a job must be one of master, chief, worker"),
        (TWO_HOSTS, {}, "there is a cluster, but the task has no type or no index; say which one "),
        (TWO_HOSTS, task("ps", True), "the task's index must be a whole number from 0, got true"),
        ({"master": "a:1"}, MASTER, 'master must be a list of addresses, e.g. ["ip0:2222"], got'),
        (
            {"master": ["a:1"], "worker": ["b:1", "b"]},
            MASTER,
            "worker/1 must be host:port, got 'b'; write it like ip0:2222 or [::1]:2222",
        ),
        (
            {"master": ["a:1"], "ps": ["A:1"]},
            MASTER,
            "master/0 (a:1) and ps/0 (A:1) share a port; give each one of its own",
        ),
        (
            {"master": ["a:1"], "evaluator": ["b:1", "c:1"]},
            MASTER,
            "a cluster has one evaluator, got evaluator b:1, evaluator c:1; leave the others out",
        ),
        (
            {"ps": ["a:1", "b:1"]},
            task("ps"),
            "nobody trains: the cluster has ps a:1, b:1 but no master and no worker; add one",
        ),
        (
            {"master": ["a:1"], "worker": ["b:1"]},
            MASTER,
            "2 tasks train but there is no ps to hold what they share: master a:1; worker b:1; "
            "add a ps, or give --replication in-graph",
        ),
    ],
    ids=str,
)
def test_a_mistake_is_named_with_its_value_and_where_it_comes_from(cluster, this_task, message):
    refused = refusal(environ(cluster, this_task))
    assert refused.startswith(message)
    assert refused.endswith(" (from TF_CONFIG)")


@pytest.mark.parametrize("key", ["Cluster", "clusterSpec", "sparseCluster"])
def test_a_cluster_under_another_name_is_refused(key):
    refused = refusal(environ({}, task("worker"), **{key: {"worker": ["a:1"]}}))
    assert refused.startswith(f'the cluster must have the key cluster, got "{key}"; rename it (')


# The flags of the ps/worker demos.


@pytest.mark.parametrize(
    ("job_name", "task_index", "label", "address"),
    [
        ("worker", 0, "worker/0", "a:1"),
        ("worker", 2, "worker/2", "c:1"),
        ("ps", 0, "ps/0", "d:1"),
        ("master", None, "worker/0", "a:1"),
        ("evaluator", None, "evaluator/0", ""),
    ],
)
def test_the_flags_make_worker_0_the_master(job_name, task_index, label, address):
    found = resolve(TrainConfig(**BY_FLAGS, job_name=job_name, task_index=task_index), {})
    assert found is not None
    assert found.jobs == {"master": ("a:1",), "worker": ("b:1", "c:1"), "ps": ("d:1",)}
    assert (found.label, found.own.address, found.source) == (label, address, "the flags")


def test_a_mistake_in_the_flags_is_named():
    refused = refusal({}, **BY_FLAGS, job_name="worker", task_index=3)
    message = "this task is worker/3, which is not in the cluster: ps d:1; worker a:1, b:1, c:1; "
    assert refused.startswith(message)
    assert refused.endswith(" (from the flags)")


def test_flags_and_tf_config_must_say_the_same():
    cluster = {"chief": ["a:1"], "worker": ["b:1", "c:1"], "ps": ["d:1"]}
    same = read(cluster, task("worker"), **BY_FLAGS, job_name="worker", task_index=1)
    assert (same.label, same.source) == ("worker/0", "TF_CONFIG")
    variables = environ(NO_CHIEF, task("worker"))
    assert refusal(variables, **BY_FLAGS, job_name="ps", task_index=0).startswith(
        "TF_CONFIG and the flags contradict each other: TF_CONFIG says worker/0 of worker a:1, "
        "b:1, c:1; ps d:1, the flags say ps/0 of ps d:1; worker a:1, b:1, c:1; "
    )
    other_hosts = {"ps_hosts": "d:1", "worker_hosts": "a:1,b:1"}
    refused = refusal(variables, **other_hosts, job_name="worker", task_index=0)
    assert "contradict each other" in refused


def test_the_model_dir_of_tf_config_must_be_the_output_folder():
    variables = {"TF_CONFIG": '{"model_dir": "gs://bucket/model"}'}
    assert resolve(parse(["--job-dir=gs://bucket/model/"]), variables) is None
    assert refusal(variables, output_dir="/b") == (
        "model_dir is gs://bucket/model, but --output-dir /b; give both the same folder (from "
        "TF_CONFIG)"
    )


ALONE = "changes nothing: this process trains alone"


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("", []),
        (
            "--sync --replicas-to-aggregate=1 --replication=between-graph",
            [
                f"note: --{name} {ALONE}"
                for name in ("sync", "replication", "replicas-to-aggregate")
            ],
        ),
        ("--num-workers=1", []),
        ("--sync --num-workers=2", [f"note: --sync {ALONE}", f"note: --num-workers 2 {ALONE}"]),
        ("--mode=evaluate --sync --num-workers=2", []),
    ],
)
def test_flags_for_several_workers_are_notes_in_a_process_alone(words, found):
    config = parse(words.split())
    for variables in ({}, environ({"worker": ["a:1"]}, task("worker"))):
        assert notes(config, resolve(config, variables)) == found


def test_another_number_of_workers_than_the_clusters_is_a_note():
    config = parse(["--sync", "--num-workers=3"])
    assert notes(config, resolve(config, environ(TWO_HOSTS, MASTER))) == [
        "note: --num-workers 3 changes nothing: the cluster has 2 tasks that train"
    ]


@pytest.mark.parametrize(
    ("settings", "this_task", "message"),
    [
        (
            {"replicas_to_aggregate": 3},
            MASTER,
            "--replicas-to-aggregate must be at most 2, the number of tasks that train, got 3 (",
        ),
        (
            {"variable_strategy": "GPU"},
            MASTER,
            "--variable-strategy GPU is for a process that trains alone; what the tasks of",
        ),
        (
            {"mode": "evaluate"},
            task("worker"),
            "--mode evaluate is for one process, but this is worker/0 of a cluster; run it on "
            "the master, or without a cluster (from TF_CONFIG)",
        ),
        (
            {"dry_run": True},
            task("worker"),
            "--dry-run is for one process, but this is worker/0 of a cluster; run it on the master",
        ),
        (
            {"lookahead_steps": 5, "sync": False},
            MASTER,
            "--lookahead-steps 5 needs all weights between two updates, and 2 tasks update them at "
            "any time; leave --sync=false out, or give another (from TF_CONFIG)",
        ),
        (
            {"optimizer": "muon", "sync": False},
            MASTER,
            "--optimizer muon needs all weights between two updates, and 2 tasks update them at",
        ),
    ],
    ids=str,
)
def test_a_setting_that_does_not_fit_the_cluster_is_refused(settings, this_task, message):
    assert refusal(environ(TWO_HOSTS, this_task), **settings).startswith(message)


def test_other_modes_run_alone_on_the_master_and_muon_synchronously() -> None:
    found: Optional[Cluster] = resolve(TrainConfig(mode="evaluate"), environ(TWO_HOSTS, MASTER))
    assert found is None
    assert read(TWO_HOSTS, MASTER, optimizer="muon").num_trainers == 2
