"""No key of a cluster file is lost on its way to the tasks, whichever backend runs them."""

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Optional

import pytest

from launch.backends.registry import KINDS, backend_named
from launch.backends.slurm.script import description
from launch.cluster import cluster_file
from launch.cluster.cluster_file import read_cluster
from launch.cluster.host_list import nameless_host
from launch.cluster.model import Cluster, Host, Limits
from launch.cluster.show import as_documents
from launch.cluster.tasks import make_job
from launch.cluster.yaml_section import seconds_or_off, setting, yes_or_no
from launch.errors import LaunchError

HOSTS = "hosts: [localhost]\nports: 2222\n"
TASKS = "tasks: {master: 1, worker: 1, ps: 1}\n"

# Section -> (key, another value than the default) of each key; the launcher alone heeds the others.
SECTIONS: dict[str, dict[str, str]] = {
    "docker": {
        "image": "other",
        "engine": "podman",
        "data": "records",
        "output": "results",
        "restricted": "false",
        "options": "[--cpus=2]",
    },
    "slurm": {
        "partition": "gpu",
        "account": "lab",
        "qos": "high",
        "time": "30",
        "mem": "16G",
        "cpus_per_task": "8",
        "gpu_type": "a100",
        "exclusive": "true",
        "requeue": "true",
        "ps": "{partition: cpu}",
        "options": "[--constraint=ib]",
    },
    "kubernetes": {
        "image": "other",
        "namespace": "lab",
        "data": "records",
        "output": "results",
        "cpu": "3",
        "memory": "9Gi",
        "ps_cpu": "3",
        "ps_memory": "9Gi",
        "gpu": "amd.com/gpu",
        "pod": '\'{"priorityClassName": "low"}\'',
        "labels": "{kueue.x-k8s.io/queue-name: lab}",
        "annotations": "{example.com/cost: 'a b'}",
        "image_pull_policy": "Always",
        "user": "off",
        "deadline_secs": "off",
    },
}
LAUNCHERS = {"docker": set[str](), "slurm": {"snapshot"}, "kubernetes": {"context", "operator"}}


def read(folder: Path, text: str) -> Cluster:
    path = folder / "lab.yaml"
    path.write_text(text)
    return read_cluster(str(path), KINDS)


@dataclass(frozen=True)
class NewHost(Host):
    shelf: Optional[str] = setting(None, str)


@dataclass(frozen=True)
class NewLimits(Limits):
    nap_secs: Optional[float] = setting(5, seconds_or_off)


@dataclass(frozen=True)
class NewCluster(Cluster):
    colour: str = setting("red", str)
    is_loud: bool = setting(False, yes_or_no, name="loud")


@pytest.mark.parametrize("name", KINDS)
def test_a_new_key_reaches_the_process_that_starts_the_tasks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    plain = vars(nameless_host())
    monkeypatch.setattr(cluster_file, "nameless_host", lambda: NewHost(**plain))
    for new in (NewHost, NewLimits, NewCluster):
        monkeypatch.setattr(cluster_file, new.__name__[3:], new)
    text = f"backend: {name}\n{TASKS if KINDS[name].chooses_hosts else HOSTS}"
    text += "shelf: top\ncolour: blue\nloud: true\nlimits: {nap_secs: off}\n"
    found: Any = read(tmp_path, text)
    if name == "slurm":  # the others start them from the launcher's own process
        found = read(tmp_path, description(found))
    for host in found.hosts:
        assert host.shelf == "top"
    assert (found.colour, found.is_loud, found.limits.nap_secs) == ("blue", True, None)


@pytest.mark.parametrize("name", SECTIONS)
def test_each_key_of_a_backends_section_changes_what_it_runs(tmp_path: Path, name: str) -> None:
    def plan(section: str) -> str:
        tasks = TASKS if KINDS[name].chooses_hosts else HOSTS
        text = f"backend: {name}\n{tasks}gpus_per_task: 1\n{name}: {section}\n"
        return as_documents(backend_named(name).plan(make_job(read(tmp_path, text))))

    settings = KINDS[name].settings
    assert settings is not None
    keys = {field.name for field in dataclasses.fields(settings)}
    assert keys == {*SECTIONS[name], *LAUNCHERS[name]}
    without = plan("{}")
    lost = [key for key, value in SECTIONS[name].items() if plan(f"{{{key}: {value}}}") == without]
    assert lost == []


@pytest.mark.parametrize("name", KINDS)
def test_a_script_of_the_users_own_is_what_tasks_run(tmp_path: Path, name: str) -> None:
    text = f"backend: {name}\n{TASKS if KINDS[name].chooses_hosts else HOSTS}program: mine/own.py\n"
    plan = as_documents(backend_named(name).plan(make_job(read(tmp_path, text))))
    assert "mine/own.py" in plan
    assert "cifar10_main.py" not in plan


@pytest.mark.parametrize("name", ["slurm", "kubernetes"])
def test_a_user_is_refused_where_nobody_logs_in(tmp_path: Path, name: str) -> None:
    rule = f"lab.yaml:3: user is for logins by ssh; {name} has none, so leave it out"
    with pytest.raises(LaunchError, match=rule):
        read(tmp_path, f"backend: {name}\n{TASKS}user: ann\n")
