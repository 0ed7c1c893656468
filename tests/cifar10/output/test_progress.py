"""The progress of training: a live line on a terminal, plain lines anywhere else."""

import os
import subprocess
import sys

import pytest

from cifar10.output.progress import ProgressLine
from testbeds.processes import ROOT
from testbeds.terminal import Terminal

STATUS = {
    "step": 1120,
    "epoch": 3.19,
    "loss": 1.2341,
    "accuracy": 0.5611,
    "learning_rate": 0.1,
    "images_per_sec": 512.3,
    "seconds_left": 252.0,
}
PLAIN = (
    "epoch 3.2/10  step 1,120/3,510  loss 1.234  accuracy 0.561  lr 0.100  512 images/s  4m12s left"
)


@pytest.fixture
def pipe():
    """The ends of a pipe, of which the second is a stream; both are closed at the end."""
    reading, writing = os.pipe()
    with os.fdopen(writing, "w", encoding="utf-8") as stream:
        yield reading, stream
    os.close(reading)


def test_stream_that_is_no_terminal_gets_one_plain_line_an_update(pipe, monkeypatch):
    reading, stream = pipe
    monkeypatch.setattr(sys, "stdout", stream)
    with ProgressLine(3510, 10.0) as progress:
        progress.show(STATUS)
        progress.show("validation accuracy 0.7312 at step 3510 (best so far)")
        progress.show({**STATUS, "step": 3510, "epoch": 10.0, "seconds_left": None})
        here = {"images_per_sec": 20, "own_images_per_sec": 9.96}
        progress.show({**STATUS, "loss": 12345.6, **here})
    assert os.read(reading, 65536).decode() == (
        f"{PLAIN}\n"
        "validation accuracy 0.7312 at step 3510 (best so far)\n"
        "epoch 10.0/10  step 3,510/3,510  loss 1.234  accuracy 0.561  lr 0.100  512 images/s\n"
        "epoch 3.2/10  step 1,120/3,510  loss 1.23e+04  accuracy 0.561  lr 0.100"
        "  20 images/s (10.0 here)  4m12s left\n"
    )


CODE = f"""
import signal, sys
from cifar10.output.progress import ProgressLine
signal.signal(signal.SIGINT, lambda *_: None)
with ProgressLine(3510, 10.0) as progress:
    progress.show("validated")
    progress.show({STATUS})
    signal.pause()
    progress.show({STATUS})
print("saved step 1120")
"""


FIRST = "━━━───────  epoch 3.2/10  loss 1.234  accuracy 0.561"


@pytest.mark.parametrize(
    ("columns", "line"),
    [
        (120, f"{FIRST}  4m12s left  512 images/s  step 1,120/3,510  lr 0.100"),
        (80, f"{FIRST}  4m12s left  512 images/s"),
        (60, FIRST),
    ],
)
def test_a_terminal_has_one_line_with_what_fits_and_ctrl_c_leaves_no_second(columns, line):
    with Terminal([sys.executable, "-c", CODE], columns, cwd=ROOT) as terminal:
        terminal.wait_for_words("3.2/10", 20)
        terminal.type("\x03")
        assert terminal.finish() == 0
        assert terminal.all_lines == ["validated", line, "saved step 1120"]


def test_a_terminal_that_is_not_utf_8_has_a_bar_of_ascii():
    env = {"PYTHONIOENCODING": "ascii:backslashreplace"}
    with Terminal([sys.executable, "-c", CODE], 60, env=env, cwd=ROOT) as terminal:
        terminal.wait_for_words("###-------  epoch 3.2/10", 20)
        terminal.type("\x03")
        assert terminal.finish() == 0


UNREAD = f"""
import sys, time
from cifar10.host.process import leave
from cifar10.output.progress import ProgressLine
status = { {**STATUS, "step": 1, "epoch": 0.1} }
with ProgressLine(100, 10.0) as progress:
    for step in range(5000):
        progress.show(status)
        time.sleep(float(sys.argv[1]))
print("trained", file=sys.stderr)
leave(0)
"""


@pytest.mark.parametrize(("ends", "secs"), [(True, "0.0001"), (False, "0")])
def test_a_reader_that_ends_or_stands_still_neither_ends_nor_delays_training(ends, secs):
    # A pipe that nobody reads is full after 64 KiB, and each write after that would wait forever.
    reading, writing = os.pipe()
    with (
        os.fdopen(reading, "rb") as reader,
        subprocess.Popen(
            [sys.executable, "-c", UNREAD, secs], stdout=writing, stderr=subprocess.PIPE, text=True
        ) as process,
    ):
        os.close(writing)
        assert reader.readline().startswith(b"epoch 0.1/10  step 1/100")
        if ends:
            reader.close()
        assert process.communicate(timeout=100)[1] == "trained\n"
    assert process.returncode == 0
