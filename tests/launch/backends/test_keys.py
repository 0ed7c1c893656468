"""No key of a cluster file is lost on its way to the tasks, whichever backend runs them."""

import dataclasses
from pathlib import Path

import pytest

from launch.backends.registry import BACKENDS
from launch.cluster.show import as_documents
from launch.cluster.tasks import make_job
from launch.errors import LaunchError
from tests.launch.backends.samples import read

HOSTS = "hosts: [localhost]\nports: 2222\n"
TASKS = "tasks: {master: 1, worker: 1, ps: 1}\n"

# Section -> another value than the default for each key; the launcher alone heeds the others.
SECTIONS = {
    "docker": "image=other engine=podman data=records output=results restricted=false "
    "options=[--cpus=2]",
    "slurm": "partition=gpu account=lab qos=high time=30 mem=16G cpus_per_task=8 gpu_type=a100 "
    """exclusive=true requeue=true ps={"partition":"cpu"} options=[--constraint=ib]""",
    "kubernetes": "image=other namespace=lab data=records output=results cpu=3 memory=9Gi ps_cpu=3 "
    "ps_memory=9Gi gpu=amd.com/gpu image_pull_policy=Always user=off deadline_secs=off "
    """pod='{"priorityClassName":"low"}' labels={"queue":"lab"} annotations={"cost":"a"}""",
}
LAUNCHERS = {"docker": set[str](), "slurm": {"snapshot"}, "kubernetes": {"context", "operator"}}


@pytest.mark.parametrize("name", SECTIONS)
def test_each_key_of_a_backends_section_changes_what_it_runs(tmp_path: Path, name: str) -> None:
    def plan(section: str) -> str:
        tasks = TASKS if BACKENDS[name].chooses_hosts else HOSTS
        text = f"backend: {name}\n{tasks}gpus_per_task: 1\n{name}: {section}\n"
        return as_documents(BACKENDS[name].plan(make_job(read(tmp_path, text))))

    settings = BACKENDS[name].settings
    assert settings is not None
    keys = {field.name for field in dataclasses.fields(settings)}
    values = dict(pair.split("=", 1) for pair in SECTIONS[name].split())
    assert keys == {*values, *LAUNCHERS[name]}
    without = plan("{}")
    assert [key for key in values if plan(f"{{{key}: {values[key]}}}") == without] == []


@pytest.mark.parametrize("name", BACKENDS)
def test_a_script_of_the_users_own_is_what_tasks_run(tmp_path: Path, name: str) -> None:
    text = (
        f"backend: {name}\n{TASKS if BACKENDS[name].chooses_hosts else HOSTS}program: mine/own.py\n"
    )
    plan = as_documents(BACKENDS[name].plan(make_job(read(tmp_path, text))))
    assert "mine/own.py" in plan
    assert "cifar10_main.py" not in plan


@pytest.mark.parametrize("name", ["slurm", "kubernetes"])
def test_a_user_is_refused_where_nobody_logs_in(tmp_path: Path, name: str) -> None:
    rule = f"lab.yaml:3: user is for logins by ssh; {name} has none, so leave it out"
    with pytest.raises(LaunchError, match=rule):
        read(tmp_path, f"backend: {name}\n{TASKS}user: ann\n")
