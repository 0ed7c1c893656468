"""The problems and warnings that a check reports."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from launch.cluster.host_list import from_hosts, on_this_machine
from launch.cluster.model import Cluster
from launch.cluster.tasks import Job, make_job
from launch.connect.host_check import Facts, HostNeeds
from launch.connect.host_check import problems as problems_of

GOOD: dict[str, Any] = {
    "has_workdir": True,
    "python": "3.11.7",
    "tensorflow": "2.15.1",
    "python_error": None,
    "code": "c0de",
    "data": "da7a",
    "ports": [[2222, None], [2223, None]],
    "gpus": [],
    "disk_free": 50 << 30,
}


def job(*arguments: str) -> Job:
    return make_job(from_hosts("a,b", python="python3", workdir="/data"), arguments)


def problems(checked: Job, found: Mapping[str, Facts]) -> list[str]:
    return problems_of(checked, found, HostNeeds(checked.folder("data")))


def facts(**second: Any) -> dict[str, Facts]:
    return {"a": GOOD, "b": {**GOOD, **second}}


def test_on_this_machine_setup_is_not_the_way_out() -> None:
    cluster = on_this_machine(0, 1, python="python3", workdir="/data")
    found = {**GOOD, "tensorflow": None, "data": None, "code": None}
    assert not any(
        "setup" in problem for problem in problems(make_job(cluster), {"localhost": found})
    )


def test_setup_makes_the_python_that_a_cluster_file_names() -> None:
    of_file = job()
    of_file = replace(of_file, cluster=replace(of_file.cluster, source="lab.yaml"))
    (found,) = problems(of_file, facts(tensorflow=None))
    assert found.endswith("launch setup, with `python: .venv/bin/python` in the cluster file")


@pytest.mark.parametrize(
    ("second", "problem"),
    [
        ({"code": None}, "b: /data has no cifar10_main.py; put it there: python -m launch setup, "),
        ({"python": None, "python_error": "no python3"}, "b: no python3; choose another with --py"),
        ({"tensorflow": None}, "b: python3 has no TensorFlow; choose another with --python, or i"),
        ({"tensorflow": "2.14.0"}, "b: tensorflow is 2.14.0, but 2.15.1 on a; have the same ever"),
        ({"data": None}, "b: no records in data; copy them there: python -m launch setup, or name"),
        ({"ports": [[2222, "port 2222 is in use"]]}, "b: port 2222 is in use"),
        ({"disk_free": 5 << 20}, "b: 5 MiB free at /data; make room for 1 GiB"),
    ],
)
def test_each_problem_is_told_with_its_mend(second: dict[str, Any], problem: str) -> None:
    (found,) = problems(job(), facts(**second))
    assert found.startswith(problem)


def test_records_in_an_object_store_are_not_looked_for_on_the_hosts() -> None:
    assert problems(job("--data-dir=gs://bucket/data"), facts(data=None)) == []


def test_a_folder_that_is_missing_is_one_problem() -> None:
    missing = dict.fromkeys(("code", "python", "tensorflow"))
    (found,) = problems(job(), facts(has_workdir=False, python_error="x does not exist", **missing))
    assert found.startswith("b: /data does not exist; make it: python -m launch setup, or name an")


def test_a_script_of_the_users_own_is_looked_for() -> None:
    own = make_job(replace(job().cluster, program="own.py"))
    (found,) = problems(own, facts(code=None))
    assert found.startswith("b: /data has no own.py; put it there: python -m launch setup, or name")


def test_an_unreachable_host_is_one_problem() -> None:
    both = {"a": GOOD, "b": {"unreachable": "b: no answer within 30 s"}}
    assert problems(job(), both) == ["b: no answer within 30 s"]


def test_an_address_that_cannot_be_reached_is_a_problem() -> None:
    failures = [["b", port, "name or service not known"] for port in (2222, 2223)]
    both = {"a": {**GOOD, "failures": failures}, "b": GOOD}
    assert problems(job(), both) == [
        "a: cannot reach b port 2222, 2223: name or service not known; look at firewalls and "
        "`address:`"
    ]


def test_more_gpus_than_are_there_is_a_problem() -> None:
    cluster = Cluster(job().cluster.hosts, gpus_per_task=2)
    found = problems(make_job(cluster), facts(gpus=["A", "B"]))
    assert found == ["a: needs 2 GPUs, but has 0; see gpus, gpus_per_task"]
