"""By what tasks of different jobs know each other, and what they never show."""

import json

import pytest

from cifar10.cluster.identity import Identity, difference, digest
from cifar10.cluster.resolve import resolve
from cifar10.cluster.spec import Cluster
from cifar10.config.train_config import TrainConfig

JOBS = {"master": ("ip0:2222",), "worker": ("ip1:2222",), "ps": ("ip0:2223",)}
SECRET = "a-token-of-this-test"
WAY_OUT = "; correct the address, or give all tasks of a job the same cluster"


def cluster(task: str = "ps", token: str = "", **jobs: tuple[str, ...]) -> Cluster:
    given = digest(token) if token else None
    return Cluster({**JOBS, **jobs}, task, 0, False, "TF_CONFIG", token=given)


@pytest.mark.parametrize(
    ("own", "other", "found"),
    [
        ({}, {}, None),
        ({}, {"ps": ("IP0:2223",)}, None),
        ({}, {"master": ("ip9:2222",)}, "master/0 of its cluster is ip9:2222, of this task's clu"),
        (
            {},
            {"worker": ("ip1:2222", "ip2:2222")},
            f"worker/1 of its cluster is ip2:2222, of this task's cluster missing{WAY_OUT}",
        ),
        # A token decides, whatever the clusters.
        ({"token": SECRET}, {"token": SECRET, "ps": ("ip9:1",)}, None),
        ({"token": "one"}, {"token": "two"}, "it has the job token 3fc4ccfe..."),
        ({"token": "one"}, {}, "it has no job token, this task has the job token 7692c3ad..."),
        ({}, {"token": "two"}, "it has the job token 3fc4ccfe... (SHA-256), this task has no job "),
    ],
    ids=str,
)
def test_tasks_of_one_job_have_the_same_token_or_cluster(own, other, found):
    told = difference(cluster(**own), Identity.of(cluster(**other)))
    assert (told is None) == (found is None)
    assert (told or "").startswith(found or "")


def test_an_identity_is_read_as_it_was_written():
    own = Identity.of(cluster("master"), digest("7"), "here:/output", {"--sync": "True"})
    assert Identity.from_text(own.as_text()) == own


@pytest.mark.parametrize(
    "text",
    ["master/0", "[]", '{"role": "ps/0"}', "[" * 100_000]
    + [json.dumps({"role": "ps/0", "token": "", "jobs": jobs}) for jobs in (5, {"ps": 5})]
    + [
        json.dumps({"role": "ps/0", "token": 5, "jobs": {}}),
        Identity("", "", {}, "a" * 300_000).as_text(),
    ]
    + [json.dumps({"role": "ps/0", "token": "", "jobs": {"ps": [5]}})]
    + [json.dumps({"role": "ps/0", "token": "", "jobs": {}, "terms": {"--sync": []}})],
    ids=lambda text: text[:20],
)
def test_what_is_no_identity_is_refused(text):
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
    assert SECRET not in repr(found) + Identity.of(found).as_text()
