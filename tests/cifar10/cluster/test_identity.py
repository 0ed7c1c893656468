"""By what tasks of different jobs know each other, and what they never show."""

import dataclasses

import pytest

from cifar10.cluster.identity import Identity, Owner, digest
from cifar10.cluster.resolve import resolve
from cifar10.cluster.spec import Cluster
from cifar10.config.train_config import TrainConfig

JOBS = {"master": ("ip0:2222",), "worker": ("ip1:2222",), "ps": ("ip0:2223",)}
SECRET = "a-token-of-this-test"


def identity(role: str = "ps/0", token: str = "", **jobs: tuple[str, ...]) -> Identity:
    return Identity(role, digest(token) if token else None, {**JOBS, **jobs})


def test_tasks_with_one_cluster_are_of_one_job():
    assert identity("master/0").difference(identity("ps/0")) is None


@pytest.mark.parametrize(
    ("jobs", "difference"),
    [
        (
            {"master": ("ip9:2222",)},
            "master/0 of its cluster is ip9:2222, of this task's cluster ip0:2222",
        ),
        (
            {"worker": ("ip1:2222", "ip2:2222")},
            "worker/1 of its cluster is ip2:2222, of this task's cluster missing",
        ),
        ({"ps": ()}, "ps/0 of its cluster is missing, of this task's cluster ip0:2223"),
    ],
)
def test_the_first_difference_of_two_clusters_is_named(jobs, difference):
    assert identity().difference(identity(**jobs)) == (
        f"{difference}; correct the address, or give all tasks of a job the same cluster"
    )


def test_the_master_may_be_listed_as_a_job_of_its_own_or_as_worker_0():
    listed = {"worker": ("ip0:2222", "ip1:2222"), "ps": ("ip0:2223",)}
    assert identity("master/0").difference(Identity("ps/0", None, listed)) is None
    listed = {"chief": ("ip0:2222",), "worker": ("ip1:2222",), "ps": ("ip0:2223",)}
    assert identity("master/0").difference(Identity("ps/0", None, listed)) is None


def test_an_evaluators_cluster_may_lack_other_tasks():
    evaluator = Identity("evaluator/0", None, {"master": ("ip0:2222",)})
    assert evaluator.difference(identity("master/0")) is None


def test_tasks_with_the_same_token_are_of_one_job_whatever_their_clusters():
    assert identity(token=SECRET).difference(identity(token=SECRET, ps=("ip9:1",))) is None


@pytest.mark.parametrize(
    ("own", "other", "difference"),
    [
        ("one", "two", "it has the job token 3fc4ccfe..."),
        ("one", "", "it has no job token, this task has the job token 7692c3ad..."),
        ("", "two", "it has the job token 3fc4ccfe... (SHA-256), this task has no job token"),
    ],
)
def test_tasks_with_different_tokens_are_of_different_jobs(own, other, difference):
    found = identity(token=own).difference(identity(token=other))
    assert found is not None
    assert found.startswith(difference)
    assert found.endswith("with the same CIFAR10_JOB_TOKEN")


def test_an_identity_is_read_as_it_was_written():
    owner = Owner(digest("7"), "here:/output")
    owned = dataclasses.replace(identity("master/0"), owner=owner, terms={"--sync": "True"})
    for one in (identity(token=SECRET), owned):
        assert Identity.from_text(one.as_text()) == one
    assert Owner.from_text(owner.as_text()) == owner


@pytest.mark.parametrize(
    "text",
    [
        "master/0",
        '{"role": "ps/0"}',
        '{"role": 1, "jobs": {}}',
        '{"role": "ps/0", "jobs": {"ps": [5]}}',
        '{"role": "ps/0", "jobs": {"ps": ["nowhere"]}}',
        '{"role": "ps/0", "jobs": {}, "owner": 5}',
        '{"role": "ps/0", "jobs": {}, "terms": {"a": 5}}',
        pytest.param(f'{{"role": "{2_000_000 * "x"}", "jobs": {{}}}}', id="too long"),
        pytest.param("[" * 100_000, id="too deep"),
    ],
)
def test_what_is_no_identity_is_refused(text):
    with pytest.raises(ValueError, match=".") as error:
        Identity.from_text(text)
    assert len(str(error.value)) < 1000


def test_a_token_is_known_only_by_its_sha_256():
    tf_config = (
        '{"cluster": {"master": ["a:1"], "ps": ["a:2"]}, "task": {"type": "ps", "index": 0}}'
    )
    cluster = resolve(TrainConfig(), {"TF_CONFIG": tf_config, "CIFAR10_JOB_TOKEN": f" {SECRET}\n"})
    assert isinstance(cluster, Cluster)
    assert cluster.token == digest(SECRET)
    assert len(digest(SECRET)) == 64
    assert SECRET not in repr(cluster) + Identity.of(cluster).as_text()
