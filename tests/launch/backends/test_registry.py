"""Backends by name, one from outside the tree among them."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from launch.backends import registry
from launch.backends.base import Backend
from launch.cluster.kind import Kind
from launch.cluster.model import Ports
from launch.cluster.show import Document
from launch.cluster.tasks import Job
from launch.cluster.yaml_section import setting, whole
from launch.errors import LaunchError
from launch.record.outcome import Outcome
from launch.record.run_folder import Record, RunFolder
from launch.screen.display import Display
from launch.verbs.cli import main

FILE = "backend: yard\ntasks: {master: 1, worker: 1}\nworkdir: /data\nyard:\n  cranes: 3\n"


@dataclass(frozen=True)
class YardSettings:
    cranes: int = setting(1, whole(1, 9))


def cranes(job: Job) -> int:
    settings: YardSettings = job.cluster.settings.get("yard", YardSettings())
    return settings.cranes


class Yard(Backend):
    """A scheduler whose jobs all end by the same accident."""

    def plan(self, job: Job) -> list[Document]:
        lines = [f"lift --cranes={cranes(job)} {task.name}" for task in job.tasks]
        return [Document("yard.sh", "\n".join(lines))]

    def run(self, job: Job, folder: RunFolder, display: Display) -> Outcome:
        for task in job.tasks:
            display.task_line(task.name, task.host.name, f"{cranes(job)} cranes")
        outcome = Outcome(3, "a crane fell", "worker/0")
        folder.write_status({"tasks": [], "exit_code": 3, "reason": outcome.reason})
        return outcome

    def clean(self, record: Record) -> list[str]:
        return [f"swept the yard of {record['backend']}"]


# What a package outside the tree has where ours have a folder's `__init__`.
KIND = Kind(
    "yard",
    Yard,
    chooses_hosts=True,
    default_ports=Ports(4000),
    settings=YardSettings,
)


@pytest.fixture
def yard() -> Iterator[None]:
    registry.register(KIND)
    yield
    if "yard" in registry.KINDS:
        registry.unregister("yard")


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "lab.yaml"
    path.write_text(FILE)
    return str(path)


def without_launchers(state: Path) -> None:
    """Makes it look as if the launchers of all runs, which are this process, had ended."""
    for path in state.glob("*/run.json"):
        record = json.loads(path.read_text())
        record["launcher"]["started"] = "0"
        path.write_text(json.dumps(record))


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    code = main(words)
    captured = capsys.readouterr()
    return code, captured.out + captured.err


@pytest.mark.usefixtures("yard")
def test_a_backend_from_outside_the_tree_shows_its_plan(
    capsys: pytest.CaptureFixture[str], file: str
) -> None:
    code, output = run(capsys, "plan", "--cluster", file, "--shell")
    assert code == 0
    assert output == "# yard.sh\nlift --cranes=3 master/0\nlift --cranes=3 worker/0\n"
    _, output = run(capsys, "plan", "--cluster", file, "--", "--x=1")
    assert output.startswith("1 master, 1 worker on 2 hosts (yard)\n\nmaster/0 on node0\n")
    assert "  command      cd /data && python3 cifar10_main.py --x=1\n" in output
    _, output = run(capsys, "plan", "--cluster", file, "--json")
    shown = json.loads(output)
    assert shown["backend"] == "yard"
    assert [task["port"] for task in shown["tasks"]] == [4000, 4000]


def test_an_unknown_backend_is_refused() -> None:
    rule = "a backend must be one of local, ssh, docker, slurm, kubernetes, got 'cloud'"
    with pytest.raises(LaunchError, match=rule):
        registry.backend_named("cloud")


@pytest.mark.usefixtures("yard")
def test_a_job_runs_on_such_a_backend_and_once_that_is_gone_is_told_of(
    capsys: pytest.CaptureFixture[str], file: str, tmp_path: Path
) -> None:
    state = ("--state-dir", str(tmp_path))
    code, output = run(capsys, "up", "--cluster", file, *state)
    assert code == 3
    assert "[master/0 node0] 3 cranes\n[worker/0 node1] 3 cranes\n" in output
    assert output.splitlines()[-1] == "exit code 3: a crane fell"
    without_launchers(tmp_path)
    code, output = run(capsys, "clean", *state)
    assert (code, output.endswith(": swept the yard of yard\n")) == (0, True)
    run(capsys, "up", "--cluster", file, *state)
    without_launchers(tmp_path)
    registry.unregister("yard")
    code, output = run(capsys, "status", *state)
    assert (code, ": exit code 3: a crane fell\nrun folder: " in output) == (3, True)
    code, output = run(capsys, "clean", *state)
    assert code == 1
    assert ": a backend must be one of local, ssh, docker, slurm, kubernetes, got 'yard'" in output
