"""Cleans the environment for all tests, schedules them over processes, and defines fixtures."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadFileScheduling

from cifar10 import kernels
from cifar10.host.cpu import cpu_flags
from cifar10.kernels import build
from tests.cifar10.forks import Forks

# Programs go on to ignore signals that they ignore at their start, as in the background of a script
# or under nohup; all programs that the tests start would do so, too.
for _signum, _default in (
    (signal.SIGINT, signal.default_int_handler),
    (signal.SIGHUP, signal.SIG_DFL),
    (signal.SIGQUIT, signal.SIG_DFL),
):
    if signal.getsignal(_signum) is signal.SIG_IGN:
        signal.signal(_signum, _default)

# A TF_CONFIG from the caller's shell would turn every training in a test into a cluster's task.
os.environ.pop("TF_CONFIG", None)


# Test files that share an image that takes minutes to build.
_SHARING_AN_IMAGE = {"test_container", "test_launch_docker"}


class _BySharing(LoadFileScheduling):
    """Runs the tests of a file in one process, and those of `_SHARING_AN_IMAGE` in the same one."""

    def _split_scope(self, nodeid: str) -> str:
        file = super()._split_scope(nodeid)
        return "image" if Path(file).stem in _SHARING_AN_IMAGE else file


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadFileScheduling:
    return _BySharing(config, log)


@pytest.fixture(scope="session")
def root() -> Path:
    """The repository's root folder."""
    return Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def compiled_kernels() -> None:
    """Compiles our convolutions; skips the test where they are not available."""
    impossible = kernels.why_impossible(cpu_flags())
    if impossible:
        pytest.skip(f"needs our kernels: {impossible}")
    code = build.main([])
    if code == 2:
        pytest.skip("needs a C++ compiler")
    assert code == 0


@pytest.fixture
def onednn() -> None:
    """Skips the test where TensorFlow lacks NCHW convolutions for CPUs."""
    if os.environ["TF_ENABLE_ONEDNN_OPTS"] != "1":
        pytest.skip("needs oneDNN, which TF_ENABLE_ONEDNN_OPTS turns off")


@pytest.fixture
def python_with_tensorflow_cpu(tmp_path: Path) -> str:
    """The path of a Python that has the metadata of tensorflow-cpu 2.15.1, and no packages."""
    folder = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    described = packages / "tensorflow_cpu-2.15.1.dist-info" / "METADATA"
    described.parent.mkdir()
    described.write_text("Metadata-Version: 2.1\nName: tensorflow-cpu\nVersion: 2.15.1\n")
    return str(folder / "bin" / "python")


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 100 kB; `failing_disk.fill` leaves no room on it."""
    if os.geteuid() != 0:
        pytest.skip("a file system of its own needs root")
    folder = tmp_path / "disk"
    folder.mkdir()
    words = ["mount", "-t", "tmpfs", "-o", "size=100k", "tmpfs", str(folder)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"no file system of its own: {done.stderr.strip()}")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


@pytest.fixture(scope="session")
def forks() -> Iterator[Forks]:
    """Runs cifar10_main.py without loading TensorFlow each time."""
    found = Forks()
    yield found
    found.close()
