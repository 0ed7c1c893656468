"""The live line of a single process on a terminal, drawn by a terminal emulator."""

import sys

import pytest

from testbeds.processes import ROOT
from testbeds.terminal import Terminal


@pytest.mark.parametrize("columns", [60, 100])
def test_ctrl_c_leaves_no_second_line(columns):
    code = """
import signal
from cifar10.output.progress import ProgressLine, TrainingStatus
signal.signal(signal.SIGINT, lambda *_: None)
status = TrainingStatus(1120, 3.19, 1.2341, 0.5611, 0.1, 512.3, 252.0)
with ProgressLine(80_000, 1137.8) as progress:
    progress.update(status)
    signal.pause()
    progress.update(status)
print("saved output/model.ckpt-1120")
"""
    with Terminal([sys.executable, "-c", code], columns, cwd=ROOT) as terminal:
        terminal.wait_for_words("1.234", 20)
        terminal.type("\x03")
        assert terminal.finish() == 0
        assert len([line for line in terminal.all_lines if "1.234" in line]) == 1
        assert terminal.all_lines[-1] == "saved output/model.ckpt-1120"
