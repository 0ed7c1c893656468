"""By what tasks of different jobs know each other, and what they never show."""

import json

import pytest

from cifar10.cluster.identity import Identity, difference, digest
from cifar10.cluster.resolve import resolve
from cifar10.cluster.spec import Cluster
from cifar10.config.train_config import TrainConfig

JOBS = {"master": ("ip0:2222",), "worker": ("ip1:2222",), "ps": ("ip0:2223",)}
SECRET = "a-token-of-this-test"


def cluster(task: str = "ps", token: str = "", **jobs: tuple[str, ...]) -> Cluster:
    given = digest(token) if token else None
    return Cluster({**JOBS, **jobs}, task, 0, False, "TF_CONFIG", token=given)


def identity(token: str = "", **jobs: tuple[str, ...]) -> Identity:
    return Identity.of(cluster("ps", token, **jobs))


def test_tasks_with_one_cluster_are_of_one_job():
    assert difference(cluster("master"), identity()) is None
    assert difference(cluster("master", ps=("IP0:2223",)), identity()) is None


@pytest.mark.parametrize(
    ("jobs", "found"),
    [
        (
            {"master": ("ip9:2222",)},
            "master/0 of its cluster is ip9:2222, of this task's cluster ip0:2222",
        ),
        (
            {"worker": ("ip1:2222", "ip2:2222")},
            "worker/1 of its cluster is ip2:2222, of this task's cluster missing",
        ),
        ({"ps": ("ip0:2223", "a:1")}, "ps/1 of its cluster is a:1, of this task's cluster missing"),
    ],
)
def test_the_first_difference_of_two_clusters_is_named(jobs, found):
    assert difference(cluster("master"), identity(**jobs)) == (
        f"{found}; correct the address, or give all tasks of a job the same cluster"
    )


def test_an_evaluators_cluster_may_lack_other_tasks():
    evaluator = Cluster({"master": ("ip0:2222",)}, "evaluator", 0, True, "TF_CONFIG")
    assert difference(evaluator, identity()) is None


def test_tasks_with_the_same_token_are_of_one_job_whatever_their_clusters():
    assert difference(cluster(token=SECRET), identity(SECRET, ps=("ip9:1",))) is None


@pytest.mark.parametrize(
    ("own", "other", "begin"),
    [
        ("one", "two", "it has the job token 3fc4ccfe..."),
        ("one", "", "it has no job token, this task has the job token 7692c3ad..."),
        ("", "two", "it has the job token 3fc4ccfe... (SHA-256), this task has no job token"),
    ],
)
def test_tasks_with_different_tokens_are_of_different_jobs(own, other, begin):
    found = difference(cluster(token=own), identity(token=other))
    assert found is not None
    assert found.startswith(begin)
    assert found.endswith("with the same CIFAR10_JOB_TOKEN")


def test_an_identity_is_read_as_it_was_written():
    own = Identity.of(cluster("master"), digest("7"), "here:/output", {"--sync": "True"})
    for one in (identity(token=SECRET), own):
        assert Identity.from_text(one.as_text()) == one


WHOLE = {"role": "ps/0", "token": "", "jobs": {}, "run": "", "place": "", "terms": {}}


@pytest.mark.parametrize(
    "text",
    [
        "master/0",
        "[]",
        '{"role": "ps/0"}',
        *(
            pytest.param(json.dumps({**WHOLE, **part}), id=str(part)[:30])
            for part in (
                {"role": 1},
                {"jobs": {"ps": [5]}},
                {"jobs": {"ps": 5}},
                {"run": None},
                {"terms": {"a": 5}},
                {"role": 2_000_000 * "x"},
            )
        ),
        pytest.param("[" * 100_000, id="too deep"),
    ],
)
def test_what_is_no_identity_is_refused(text):
    assert Identity.from_text(json.dumps(WHOLE)).role == "ps/0"
    with pytest.raises(ValueError, match=".") as error:
        Identity.from_text(text)
    assert len(str(error.value)) < 1000


def test_a_token_is_known_only_by_its_sha_256():
    tf_config = (
        '{"cluster": {"master": ["a:1"], "ps": ["a:2"]}, "task": {"type": "ps", "index": 0}}'
    )
    found = resolve(TrainConfig(), {"TF_CONFIG": tf_config, "CIFAR10_JOB_TOKEN": f" {SECRET}\n"})
    assert isinstance(found, Cluster)
    assert found.token == digest(SECRET)
    assert len(digest(SECRET)) == 64
    assert SECRET not in repr(found) + Identity.of(found).as_text()
