"""TF_CONFIG and the flags: every shape that platforms write, and every mistake in them."""

import json
from typing import Any, Optional

import pytest

from cifar10.cluster.resolve import notes, resolve, with_model_dir
from cifar10.cluster.spec import Cluster, Task
from cifar10.config.flags import parse
from cifar10.config.train_config import TrainConfig
from cifar10.errors import ConfigError

TWO_HOSTS = {"master": ["ip0:2222"], "ps": ["ip0:2223", "ip1:2223"], "worker": ["ip1:2222"]}
NO_CHIEF = {"worker": ["a:1", "b:1", "c:1"], "ps": ["d:1"]}
BY_FLAGS = {"ps_hosts": "d:1", "worker_hosts": "a:1,b:1,c:1"}


def resolve_text(text: str, **settings: Any) -> Optional[Cluster]:
    return resolve(TrainConfig(**settings), {"TF_CONFIG": text, "PATH": "/bin"})


def read(cluster: Any, task: Any, *, other: Any = None, **settings: Any) -> Cluster:
    """The cluster of that TF_CONFIG."""
    text = json.dumps({"cluster": cluster, "task": task, **(other or {})})
    found = resolve_text(text, **settings)
    assert found is not None
    return found


def read_flags(**settings: Any) -> Cluster:
    found = resolve(TrainConfig(**settings), {})
    assert found is not None
    return found


def refusal(cluster: Any, task: Any, **settings: Any) -> str:
    with pytest.raises(ConfigError) as refused:
        read(cluster, task, **settings)
    message = str(refused.value)
    assert "\n" not in message
    return message


def refusal_of_flags(**settings: Any) -> str:
    with pytest.raises(ConfigError) as refused:
        read_flags(**settings)
    return str(refused.value)


# No cluster.


@pytest.mark.parametrize("flag", ["--replication=between-graph", "--ps-transfer=fp32"])
def test_a_setting_of_several_workers_is_refused_alone_even_with_its_default(flag):
    with pytest.raises(ConfigError, match="is for several workers; this process trains alone"):
        resolve(parse([flag]), {})


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
    assert resolve_text(text) is None


def test_a_task_without_a_cluster_is_refused():
    assert refusal({}, {"type": "ps", "index": 0}) == (
        'the task is {"type": "ps", "index": 0}, but there is no cluster; list its addresses in '
        "cluster, or leave the task out to train alone (from TF_CONFIG)"
    )
    assert "there is no cluster" in refusal({}, {"type": "worker", "index": 1})


# The shapes that platforms write.


def test_the_articles_cluster_has_two_hosts_with_a_ps_on_each():
    found = read(TWO_HOSTS, {"type": "master", "index": 0}, other={"environment": "cloud"})
    jobs = {"master": ("ip0:2222",), "ps": ("ip0:2223", "ip1:2223"), "worker": ("ip1:2222",)}
    assert found == Cluster(
        jobs=jobs,
        task_type="master",
        task_index=0,
        has_evaluator=False,
        source="TF_CONFIG",
        listed=jobs,
    )
    assert [one.role for one in found.trainers] == ["master/0", "worker/0"]


def test_keys_that_nobody_reads_are_named_and_passed_over():
    other = {
        "environment": "anything",
        "rpc_layer": "grpc",
        "service": {},
        "session_master": "grpc://ip0:2222",
        "eval_session_master": "",
        "job": {"args": ["--x"], "region": "r"},
        "cluster_name": "prod",
        "cluster_tags": ["a"],
    }
    task = {"type": "worker", "index": 0, "cloud": "x"}
    found = read(TWO_HOSTS, task, other=other)
    assert found.label == "worker/0"
    environ = {"TF_CONFIG": json.dumps({"cluster": TWO_HOSTS, "task": task, **other})}
    assert notes(TrainConfig(), found, environ) == [
        'note: nobody reads "job", "cluster_name", "cluster_tags" of TF_CONFIG'
    ]


@pytest.mark.parametrize(
    ("key", "value", "others"),
    [
        ("Cluster", {"worker": ["a:1"]}, {"cluster": {}}),
        ("clusterSpec", {"worker": ["a:1"]}, {"cluster": TWO_HOSTS}),
    ],
)
def test_a_cluster_under_another_name_is_refused(key, value, others):
    text = json.dumps({key: value, "task": {"type": "worker", "index": 0}, **others})
    with pytest.raises(ConfigError, match=f'^the cluster must have the key cluster, got "{key}"; '):
        resolve_text(text)


MODEL_DIR = {"TF_CONFIG": '{"model_dir": "gs://bucket/model"}'}


@pytest.mark.parametrize("words", ["", "--output-dir=gs://bucket/model"])
def test_the_model_dir_of_tf_config_is_the_output_dir_as_in_estimator(words):
    assert with_model_dir(parse(words.split()), MODEL_DIR).output_place == "gs://bucket/model"


@pytest.mark.parametrize("given", ["./out/", "link", "{}/out"])
def test_an_output_folder_under_another_name_is_the_same(tmp_path, monkeypatch, given):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "link").symlink_to("out")
    environ = {"TF_CONFIG": json.dumps({"model_dir": f"{tmp_path}/out/"})}
    found = with_model_dir(parse([f"--output-dir={given.format(tmp_path)}"]), environ)
    assert found.output_place == f"{tmp_path}/out/"


def test_two_output_folders_are_refused():
    with pytest.raises(ConfigError) as refused:
        with_model_dir(parse(["--job-dir=/b"]), MODEL_DIR)
    assert str(refused.value) == (
        "--output-dir /b and the model_dir of TF_CONFIG, gs://bucket/model, contradict each other; "
        "give one"
    )


@pytest.mark.parametrize("listed", ["chief", "master"])
@pytest.mark.parametrize("task_type", ["chief", "master"])
def test_chief_and_master_are_one_word(listed, task_type):
    found = read({listed: ["a:1"], "ps": ["b:1"]}, {"type": task_type, "index": 0})
    assert found.jobs == {"master": ("a:1",), "ps": ("b:1",)}
    assert (found.label, found.own.role) == (f"{listed}/0", "master/0")
    assert found.is_master


def test_kubeflows_evaluator_is_taken_out_of_the_cluster():
    cluster = {"chief": ["a:1"], "worker": ["b:1"], "ps": ["c:1"], "evaluator": ["d:1"]}
    evaluator = read(cluster, {"type": "evaluator", "index": 0})
    assert evaluator.jobs == {"master": ("a:1",), "worker": ("b:1",), "ps": ("c:1",)}
    assert evaluator.own == Task("evaluator", 0, "evaluator/0", "d:1")
    assert evaluator.has_evaluator
    assert read(cluster, {"type": "chief", "index": 0}).has_evaluator


def test_estimators_evaluator_is_not_listed():
    evaluator = read({"chief": ["a:1"], "ps": ["c:1"]}, {"type": "evaluator", "index": 0})
    assert evaluator.own == Task("evaluator", 0, "evaluator/0", "")
    assert evaluator.has_evaluator
    assert not evaluator.is_master
    assert not read({"chief": ["a:1"]}, {"type": "chief", "index": 0}).has_evaluator


def test_a_single_task_is_a_cluster_that_is_alone():
    for job in ("chief", "master", "worker"):
        found = read({job: ["127.0.0.1:2222"]}, {"type": job, "index": 0})
        assert found.is_alone
        assert (found.label, found.jobs) == (f"{job}/0", {"master": ("127.0.0.1:2222",)})


@pytest.mark.parametrize(
    ("index", "role", "address"),
    [(0, "master/0", "a:1"), (1, "worker/0", "b:1"), (2, "worker/1", "c:1")],
)
def test_without_a_chief_worker_0_is_the_master_and_all_keep_their_names(index, role, address):
    found = read(NO_CHIEF, {"type": "worker", "index": index})
    assert found.jobs == {"master": ("a:1",), "worker": ("b:1", "c:1"), "ps": ("d:1",)}
    assert (found.own.role, found.own.address) == (role, address)
    assert found.label == f"worker/{index}"
    assert {one.role: one.label for one in found.tasks} == {
        "master/0": "worker/0",
        "worker/0": "worker/1",
        "worker/1": "worker/2",
        "ps/0": "ps/0",
    }


def test_a_job_may_be_given_by_index():
    cluster = {"chief": {"0": "a:1"}, "ps": {"1": "c:1", "0": "b:1"}}
    found = read(cluster, {"type": "ps", "index": 0})
    assert found.jobs == {"master": ("a:1",), "ps": ("b:1", "c:1")}


def test_an_empty_list_means_that_there_is_no_such_job():
    cluster = {"chief": [], "master": ["a:1"], "worker": [], "ps": None, "evaluator": []}
    found = read(cluster, {"type": "master", "index": 0})
    assert found.jobs == {"master": ("a:1",)}
    assert not found.has_evaluator


# Mistakes in TF_CONFIG.


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{'cluster': {}}", "\"{'cluster': {}}\" is not JSON, Expecting property name"),
        ("[1]", "it must be a JSON object, got [1]; write {"),
        ('{"a":' * 100_000, '\'{"a":{"a":'),
        ('{"cluster": ["a:1"]}', 'cluster must be an object, got ["a:1"]; write {"cluster"'),
        ('{"cluster": []}', "cluster must be an object, got []"),
        ('{"cluster": {}, "task": "worker"}', 'task must be an object, got "worker"'),
    ],
)
def test_what_is_no_tf_config_is_refused_with_an_example(text, message):
    with pytest.raises(ConfigError) as refused:
        resolve_text(text)
    assert str(refused.value).startswith(message)
    assert str(refused.value).endswith(
        'write {"cluster": {"master": ["ip0:2222"]}, "task": {"type": "master", "index": 0}} '
        "(from TF_CONFIG)"
    )


MASTER_0 = {"type": "master", "index": 0}


@pytest.mark.parametrize(
    ("cluster", "task", "message"),
    [
        (
            {"chief": ["a:1"], "master": ["b:1"]},
            MASTER_0,
            "two chiefs: chief a:1, master b:1; a cluster has one chief (or master)",
        ),
        (
            NO_CHIEF,
            {"type": "worker", "index": 3},
            "this task is worker/3, which is not in the cluster: worker a:1, b:1, c:1; ps d:1; ",
        ),
        (NO_CHIEF, MASTER_0, "this task is master/0, which is not in the cluster: worker a:1,"),
        (
            TWO_HOSTS,
            {"type": "boss", "index": 0},
            "the task's type must be one of master, chief, worker, ps, evaluator, got 'boss'",
        ),
        (
            {"master": ["a:1"], "gpu": ["b:1"]},
            MASTER_0,
            "a job must be one of master, chief, worker, ps, evaluator, got 'gpu'",
        ),
        (
            TWO_HOSTS,
            {},
            "there is a cluster, but the task has no type and index; say which one this is, e.g. "
            '"task": {"type": "worker", "index": 0}',
        ),
        (TWO_HOSTS, {"type": "ps"}, "there is a cluster, but the task has no index; say which"),
        (TWO_HOSTS, {"type": "ps", "index": -1}, "the task's index must be a whole number from 0"),
        ({"master": "a:1"}, MASTER_0, 'master must be a list of addresses, e.g. ["ip0:2222"], got'),
        (
            {"master": ["a:1"], "ps": {"0": "b:1", "2": "c:1"}},
            MASTER_0,
            'ps must have an address for each index from 0, without gaps, got {"0": "b:1", "2":',
        ),
        (
            {"master": ["a:1"], "worker": ["b:1", "b"]},
            MASTER_0,
            "worker/1 must be host:port, got 'b', which has no port; add one, e.g. b:2222",
        ),
        (
            {"master": ["a:1"], "ps": ["A:1"]},
            MASTER_0,
            "master/0 (a:1) and ps/0 (A:1) share a port; give each one of its own",
        ),
        ({"master": ["localhost:1"], "ps": ["[::1]:1"]}, MASTER_0, "master/0 (localhost:1) and"),
        (
            {"master": ["a:1"], "evaluator": ["b:1", "c:1"]},
            MASTER_0,
            "a cluster has one evaluator, got b:1, c:1; leave the others out",
        ),
        (
            {"ps": ["a:1", "b:1"]},
            {"type": "ps", "index": 0},
            "nobody trains: the cluster has ps a:1, b:1 but no master and no worker; add one",
        ),
        (
            {"master": ["a:1"], "worker": ["b:1"]},
            MASTER_0,
            "2 tasks train but there is no ps to hold what they share: master a:1; worker b:1; "
            "add a ps, or give --replication in-graph",
        ),
    ],
)
def test_a_mistake_is_named_with_its_value_and_where_it_comes_from(cluster, task, message):
    refused = refusal(cluster, task)
    assert refused.startswith(message)
    assert refused.endswith(" (from TF_CONFIG)")


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
    found = read_flags(**BY_FLAGS, job_name=job_name, task_index=task_index)
    assert found.jobs == {"master": ("a:1",), "worker": ("b:1", "c:1"), "ps": ("d:1",)}
    assert (found.label, found.own.address, found.source) == (label, address, "the flags")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"job_name": "ps"}, "--job-name ps needs a cluster; give --worker-hosts and --ps-hosts"),
        ({**BY_FLAGS, "task_index": 0}, "--ps-hosts and --worker-hosts need --job-name and"),
        (
            {**BY_FLAGS, "job_name": "worker", "task_index": 3},
            "this task is worker/3, which is not in the cluster: ps d:1; worker a:1, b:1, c:1; "
            "correct the task or the cluster (an index counts from 0) (from the flags)",
        ),
        (
            {"worker_hosts": "a:1,,b:1", "job_name": "worker", "task_index": 0},
            "worker/1 must be host:port, got '', which has no valid host; name one, e.g. ip0:2222 "
            "(from the flags)",
        ),
    ],
)
def test_a_mistake_in_the_flags_is_named(settings, message):
    assert refusal_of_flags(**settings).startswith(message)


def test_flags_that_say_the_same_as_tf_config_are_fine():
    found = read(
        {"chief": ["a:1"], "worker": ["b:1", "c:1"], "ps": ["d:1"]},
        {"type": "worker", "index": 0},
        **BY_FLAGS,
        job_name="worker",
        task_index=1,
    )
    assert (found.label, found.source) == ("worker/0", "TF_CONFIG")


def test_flags_that_contradict_tf_config_are_refused():
    task = {"type": "worker", "index": 0}
    refused = refusal(NO_CHIEF, task, **BY_FLAGS, job_name="ps", task_index=0)
    assert refused.startswith(
        "TF_CONFIG and the flags contradict each other: TF_CONFIG says worker/0 of worker a:1, "
        "b:1, c:1; ps d:1, the flags say ps/0 of ps d:1; worker a:1, b:1, c:1; "
    )
    other_hosts = {"ps_hosts": "d:1", "worker_hosts": "a:1,b:1"}
    refused = refusal(NO_CHIEF, task, **other_hosts, job_name="worker", task_index=0)
    assert "contradict each other" in refused


# Settings that do not fit the cluster.


ALONE = "changes nothing: this process trains alone"


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("", []),
        ("--sync", [f"note: --sync {ALONE}"]),
        ("--replicas-to-aggregate=1", [f"note: --replicas-to-aggregate 1 {ALONE}"]),
        ("--num-workers=1", []),
        ("--sync --num-workers=2", [f"note: --sync {ALONE}", f"note: --num-workers 2 {ALONE}"]),
        ("--mode=evaluate --sync --num-workers=2", []),
    ],
)
def test_flags_for_several_workers_are_notes_in_a_process_alone(words, found):
    config = parse(words.split())
    assert notes(config, resolve(config, {}), {}) == found
    alone = json.dumps({"cluster": {"worker": ["a:1"]}, "task": {"type": "worker", "index": 0}})
    assert notes(config, resolve(config, {"TF_CONFIG": alone}), {}) == found


def test_another_number_of_workers_than_the_clusters_is_a_note():
    config = parse(["--sync", "--num-workers=3"])
    tf_config = {"cluster": TWO_HOSTS, "task": {"type": "master", "index": 0}}
    environ = {"TF_CONFIG": json.dumps(tf_config)}
    assert notes(config, resolve(config, environ), environ) == [
        "note: --num-workers 3 changes nothing: the cluster has 2 tasks that train "
        "(master ip0:2222; worker ip1:2222)"
    ]


def test_an_update_cannot_wait_for_more_gradients_than_there_are_trainers():
    assert refusal(TWO_HOSTS, MASTER_0, replicas_to_aggregate=3) == (
        "--replicas-to-aggregate must be at most 2, the tasks that train (master ip0:2222; "
        "worker ip1:2222), got 3 (from TF_CONFIG)"
    )


def test_other_modes_run_alone_on_the_master():
    text = json.dumps({"cluster": TWO_HOSTS, "task": MASTER_0})
    assert resolve_text(text, mode="evaluate", sync=False) is None


def test_other_modes_are_refused_elsewhere():
    assert refusal(TWO_HOSTS, {"type": "worker", "index": 0}, mode="evaluate") == (
        "--mode evaluate is for one process, but this is worker/0 of a cluster; run it on "
        "the master, or without a cluster (from TF_CONFIG)"
    )


TWO_TRAINERS = {"master": ["a:1"], "worker": ["b:1"], "ps": ["c:1"]}
MASTER_TASK = {"type": "master", "index": 0}


def test_lookahead_is_refused_where_updates_come_at_any_time():
    message = refusal(TWO_TRAINERS, MASTER_TASK, lookahead_steps=5, sync=False)
    assert message.startswith("--lookahead-steps 5 averages the weights between updates, and 2")
    assert "leave --sync=false out, or give --lookahead-steps 0" in message


def test_muon_is_refused_where_updates_come_at_any_time():
    message = refusal(TWO_TRAINERS, MASTER_TASK, optimizer="muon", sync=False)
    assert message.startswith("--optimizer muon updates whole kernels at once, and 2 tasks")
    assert "leave --sync=false out, or give another --optimizer" in message
    assert read(TWO_TRAINERS, MASTER_TASK, optimizer="muon").num_trainers == 2
