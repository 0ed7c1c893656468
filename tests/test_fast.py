"""`--fast` leaves out what loads TensorFlow or starts programs, and nothing else."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests import fast

pytestmark = pytest.mark.slow  # It starts pytest.


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("cifar10/config/test_flags.py", None),
        ("cifar10/step/test_losses.py", "tensorflow"),
        ("cifar10/host/test_files.py", "tensorflow"),
        ("cifar10/cluster/test_server.py", "testbeds.processes"),
        ("launch/screen/test_live.py", "testbeds.terminal"),
        ("test_makefile.py", "tests.shell"),
        ("system/test_demo.py", "tests/system"),
    ],
)
def test_a_file_is_slow_by_what_it_imports_directly_or_by_others(root: Path, name: str, why: str):
    assert fast.why_slow(root / "tests" / name) == why


def test_what_is_left_out_is_counted(root: Path):
    names = ("launch/agent/test_protocol.py", "data_prep/tfrecord/test_write.py")
    words = ["--fast", "-q", "-p", "no:cacheprovider", *(f"tests/{name}" for name in names)]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *words], cwd=root, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout
    assert "13 passed, 3 deselected" in done.stdout
    assert " files that load TensorFlow or start programs, and 3 tests of others" in done.stdout
    assert "`make test` runs them" in done.stdout
