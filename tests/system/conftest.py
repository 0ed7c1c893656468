"""Fixtures with clean copies of the repository, and with containers."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from testbeds import nodes as machines
from testbeds.nodes import Nodes
from testbeds.processes import tasks_started_by
from tests import shell
from tests.cifar10.forks import Forks
from tests.shell import ROOT
from tests.system.containers import Docker

# Names that a fresh clone does not have: at the top level, and at any level.
_LEFT_OUT_AT_TOP = {".git", ".venv", "data", "output", "demo"}
_LEFT_OUT = shutil.ignore_patterns("__pycache__", ".*_cache", "*.tfrecords")


def _ignore(folder: str, names: list[str]) -> set[str]:
    left_out = _LEFT_OUT(folder, names)
    return left_out | (_LEFT_OUT_AT_TOP & set(names) if Path(folder) == ROOT else set())


def copy_repository(target: Path) -> Path:
    """Copies the repository to `target` as in a fresh clone; returns `target`."""
    return Path(shutil.copytree(ROOT, target, ignore=_ignore))


@pytest.fixture(scope="module", autouse=True)
def tasks_are_forks(forks: Forks) -> Iterator[None]:
    """Clusters of these tests start their tasks without loading TensorFlow each time."""
    with tasks_started_by(forks.start):
        yield


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    """Three hosts over real ssh."""
    reason = machines.why_not()
    if reason:
        pytest.skip(reason)
    with Nodes(tmp_path_factory.mktemp("nodes") / "ssh") as running:
        yield running


@pytest.fixture(scope="session")
def docker() -> Iterator[Docker]:
    """A `docker` command that works on this machine; its files are removed at the end."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        running = Docker(Path(folder) / "c")
        try:
            running.import_base_image()
            yield running
        finally:
            running("system", "reset", "--force")  # ends containers and unmounts storage


@pytest.fixture(scope="session")
def image(docker: Docker, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The name of the image, built by README's command from a folder with unwanted files, too."""
    context = copy_repository(tmp_path_factory.mktemp("context") / "clone")
    for name in ("data", "output", ".git", ".venv", "demo"):
        (context / name).mkdir()
        (context / name / "stays-out").touch()
    (context / "notes.txt").touch()
    shell.run("docker build -t cifar10 .", context, env=docker.env, timeout_secs=800)
    return "cifar10"
