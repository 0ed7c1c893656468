"""The bars of `setup`, as a terminal shows them, and the lines without one."""

import os
import pty
import re
import subprocess
import sys

import pytest

from launch.screen.bars import Bars
from tests.launch.launcher import ROOT

_DRAW = """
from launch.screen.bars import Bars
bars = Bars(["node1", "a-long-name"])
bars.line("node1", "code: [bold]2 files\\x1b[2J copied")
bars.show("node1", 1.0, "ready")
bars.end("node1", "ready")
bars.show("a-long-name", 0.5, "venv: " + "Collecting [x] " * 30)
bars.close()
"""


def on_terminal(code: str) -> str:
    """Returns what a program writes to a terminal of 100 columns."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env={**os.environ, "COLUMNS": "100", "TERM": "xterm", "NO_COLOR": "1"},
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    )
    os.close(theirs)
    seen = b""
    while True:
        try:
            data = os.read(ours, 4096)
        except OSError:  # the other end is closed
            break
        if not data:
            break
        seen += data
    os.close(ours)
    assert process.wait() == 0
    return seen.decode()


@pytest.mark.slow
def test_each_host_has_a_bar_whatever_the_length_of_its_words() -> None:
    seen = on_terminal(_DRAW)
    assert "node1: code: [bold]2 files[2J copied\r\n" in seen
    lines = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", seen).replace("\r", "\n").splitlines()
    first, second = [line.rstrip() for line in lines if line.strip()][-2:]
    assert re.fullmatch(r"node1 +━{24} 100 % 0:00:0\d ready", first), first
    # Half a bar, and as much of the words as there is room for.
    assert re.fullmatch(r"a-long-name +━+.* 50 % 0:00:0\d venv: Collecting \[x\].*…", second)
    assert len(second) <= 100


def test_without_a_terminal_there_are_lines_alone(capsys: pytest.CaptureFixture[str]) -> None:
    bars = Bars(["node1"])
    bars.show("node1", 0.5, "venv: Collecting x")
    bars.line("node1", "code: is the same\x1b[2J")
    bars.end("node1", "ready")
    bars.close()
    assert capsys.readouterr().out == "node1: code: is the same[2J\n"
