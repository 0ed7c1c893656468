"""Which token a run gives to its tasks."""

import re
from dataclasses import replace

from launch.cluster.host_list import on_this_machine
from launch.cluster.job_token import with_token
from launch.cluster.show import as_json, as_text
from launch.cluster.tasks import Job, make_job


def job() -> Job:
    return make_job(on_this_machine(1, 1, workdir="/work"))


def test_each_run_makes_a_random_token_for_all_tasks() -> None:
    first, second = (dict(with_token(job()).cluster.environment) for _ in range(2))
    assert list(first) == ["CIFAR10_JOB_TOKEN"]
    assert re.fullmatch("[0-9a-f]{32}", first["CIFAR10_JOB_TOKEN"])
    assert first != second


def test_a_token_that_the_user_gives_is_kept() -> None:
    given, cluster = ("CIFAR10_JOB_TOKEN", "mine"), job().cluster
    by_value = replace(job(), cluster=replace(cluster, environment=(given,)))
    by_name = replace(job(), cluster=replace(cluster, passed=("CIFAR10_JOB_TOKEN",)))
    assert with_token(by_value) == by_value
    assert with_token(by_name) == by_name


def test_other_variables_stay() -> None:
    cluster = replace(job().cluster, environment=(("COLOUR", "green"),))
    found = with_token(replace(job(), cluster=cluster)).cluster.environment
    assert [name for name, _ in found] == ["COLOUR", "CIFAR10_JOB_TOKEN"]


def test_a_plan_has_no_token() -> None:
    assert "TOKEN" not in as_text(job()) + as_json(job())
