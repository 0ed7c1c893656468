"""`make demo` in a fresh clone, as new users run it."""

import re
from pathlib import Path

import pytest

from testbeds.terminal import Terminal
from tests import shell
from tests.system.conftest import copy_repository

pytestmark = [pytest.mark.system, pytest.mark.timeout(900)]

PATIENCE_SECS = 600


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return copy_repository(tmp_path_factory.mktemp("demo") / "clone")


@pytest.fixture(scope="module")
def shown(clone: Path) -> str:
    """What the first `make demo` in a fresh clone shows on a terminal."""
    with Terminal(["make", "demo"], 100, cwd=clone) as terminal:
        assert terminal.finish(PATIENCE_SECS) == 0, terminal.all_lines
        assert any("elapsed" in line for frame in terminal.frames for line in frame)
        return "\n".join(terminal.all_lines)


def test_demo_ends_with_its_accuracy_and_what_to_do_next(clone: Path, shown: str) -> None:
    lines = "\n".join(shown.splitlines()[-22:])
    assert re.search(r"eval accuracy 0\.\d{4} on 2,000 images, completed", lines), lines
    assert "-m data_prep --source cifar-10-python.tar.gz" in lines
    assert "cifar10_main.py --recipe fast" in lines
    for name in ("report.html", "result.json"):
        assert (clone / "demo" / "output" / name).exists()


@pytest.mark.usefixtures("shown")
def test_demo_again_keeps_what_is_done(clone: Path) -> None:
    again = shell.run("make demo", clone, timeout_secs=PATIENCE_SECS).stdout
    assert "Setting up" not in again
    finished = (
        r"\[master/0 localhost\] already trained to step 282: eval accuracy 0\.\d{4}, "
        r"report: demo/output/report\.html, result: demo/output/result\.json"
    )
    assert re.search(finished, again)
