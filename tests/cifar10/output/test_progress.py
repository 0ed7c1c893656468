import fcntl
import io
import math
import os
import pty
import re
import struct
import subprocess
import sys
import termios
import threading
import time
from dataclasses import replace
from typing import Union

import pytest

from cifar10.output.progress import ProgressLine, TrainingStatus, format_duration

STATUS = TrainingStatus(
    step=1120,
    epoch=3.19,
    loss=1.2341,
    accuracy=0.5611,
    learning_rate=0.1,
    images_per_sec=512.3,
    seconds_left=252.0,
)
ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


@pytest.fixture(autouse=True)
def _a_colour_terminal_on_a_desk(monkeypatch):
    monkeypatch.setenv("TERM", "xterm-256color")
    for name in ("CI", "NO_COLOR", "COLUMNS", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)


class Terminal:
    """A pseudo-terminal of a given width, and everything that was written to it."""

    def __init__(self, columns: int) -> None:
        self._master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        self.stream = os.fdopen(slave, "w", encoding="utf-8")
        self._chunks: list[bytes] = []
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        while True:
            try:
                chunk = os.read(self._master, 65536)
            except OSError:  # EIO: the last one to write has closed
                chunk = b""
            if not chunk:
                return
            self._chunks.append(chunk)

    def finish(self) -> str:
        self.stream.close()
        self._reader.join(10)
        os.close(self._master)
        return b"".join(self._chunks).decode()


def shown_on_terminal(columns: int, *items: Union[TrainingStatus, str], start_step: int = 0) -> str:
    terminal = Terminal(columns)
    with ProgressLine(3510, 10.0, terminal.stream, start_step=start_step) as progress:
        for item in items:
            if isinstance(item, str):
                progress.message(item)
            else:
                progress.update(item)
    return terminal.finish()


def test_a_full_pipe_that_another_process_has_made_non_blocking_loses_nothing():
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    with os.fdopen(writing, "w") as stream, ProgressLine(3510, 10.0, stream) as progress:
        progress.message("x" * 200_000)  # three times what the pipe holds
        progress.message("last")
        time.sleep(0.2)  # until it is full
        read = b""
        while not read.endswith(b"last\n"):
            read += os.read(reading, 65536)
    os.close(reading)
    assert read == b"x" * 200_000 + b"\nlast\n"


def drawn_lines(output: str) -> list[str]:
    return [line for line in re.split(r"[\r\n]+", ESCAPE.sub("", output)) if line.strip()]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0s"),
        (42.4, "42s"),
        (59.6, "1m00s"),
        (252, "4m12s"),
        (3780, "1h03m"),
        (187_200, "2d04h"),
        (-3, "0s"),
        (math.inf, "?"),
        (math.nan, "?"),
    ],
)
def test_duration_has_its_two_largest_units(seconds, text):
    assert format_duration(seconds) == text


def test_stream_that_is_no_terminal_gets_one_plain_line_an_update():
    stream = io.StringIO()
    with ProgressLine(3510, 10.0, stream) as progress:
        progress.update(STATUS)
        progress.message("validation accuracy 0.7312 at step 3510 (best so far)")
        progress.update(replace(STATUS, step=3510, epoch=10.0, seconds_left=None))
    assert stream.getvalue() == (
        "epoch 3.2/10  step 1,120/3,510  loss 1.234  accuracy 0.561  lr 0.100"
        "  512 images/s  4m12s left\n"
        "validation accuracy 0.7312 at step 3510 (best so far)\n"
        "epoch 10.0/10  step 3,510/3,510  loss 1.234  accuracy 0.561  lr 0.100  512 images/s\n"
    )


@pytest.mark.parametrize(("name", "value"), [("TERM", "dumb"), ("CI", "true")])
def test_dumb_terminal_and_ci_get_plain_lines(monkeypatch, name, value):
    monkeypatch.setenv(name, value)
    output = shown_on_terminal(80, STATUS)
    assert "\x1b" not in output
    assert "step 1,120/3,510" in output


def test_terminal_shows_bar_and_figures_on_one_line():
    output = shown_on_terminal(100, STATUS)
    lines = drawn_lines(output)
    assert lines[0].endswith("step 0/3,510  starting")
    assert "\x1b[35m━━━━\x1b[0m\x1b[2m━━━━━━━━━\x1b[0m " in output
    figures = lines[-1].lstrip("━").strip()
    assert figures == (
        "epoch 3.2/10  step 1,120/3,510  loss 1.234  accuracy 0.561  512 images/s  4m12s left"
    )


@pytest.mark.parametrize(
    ("columns", "text"),
    [
        (80, "epoch 3.2/10  1,120/3,510  loss 1.234  acc 0.561  512 img/s  4m12s"),
        (60, "epoch 3.2/10  loss 1.234  acc 0.561  512 img/s  4m12s"),
        (40, "3.2/10  loss 1.234  acc 0.561  4m12s"),
        (20, "3.2/10  loss 1.234"),
    ],
)
def test_narrow_terminal_gets_fewer_words_and_no_second_line(columns, text):
    lines = drawn_lines(shown_on_terminal(columns, STATUS))
    assert lines[-1].strip().endswith(text)
    assert all(len(line) < columns for line in lines)


def test_message_stands_above_the_live_line():
    lines = drawn_lines(shown_on_terminal(80, STATUS, "validation accuracy 0.7312", STATUS))
    assert "validation accuracy 0.7312" in lines
    assert lines[-1].strip().endswith("4m12s")


def test_no_color_leaves_out_every_style(monkeypatch):
    assert re.search(r"\x1b\[[0-9;]+m", shown_on_terminal(80, STATUS))
    monkeypatch.setenv("NO_COLOR", "1")
    output = shown_on_terminal(100, STATUS)
    assert not re.search(r"\x1b\[[0-9;]+m", output)
    assert "━━━━          epoch 3.2/10" in output


def test_training_outlives_the_reader_of_its_pipe():
    source = (
        "import sys, time\n"
        "from cifar10.output.progress import ProgressLine, TrainingStatus\n"
        "with ProgressLine(100, 10.0) as progress:\n"
        "    for step in range(100):\n"
        "        progress.update(TrainingStatus(step, step / 10, 1.0, 0.5, 0.1, 100.0, None))\n"
        "        time.sleep(0.002)\n"
        "print('trained', file=sys.stderr)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", source], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith(b"epoch 0.0/10  step 0/100")
        process.stdout.close()
        assert process.stderr is not None
        assert process.stderr.read() == b"trained\n"
    assert process.returncode == 0


def test_reader_that_stands_still_delays_neither_training_nor_its_end():
    # Nobody reads this pipe: it fills after 64 KiB, and each write after that would wait forever.
    source = (
        "import sys\n"
        "from cifar10.output.progress import ProgressLine, TrainingStatus\n"
        "status = TrainingStatus(1, 0.1, 1.0, 0.5, 0.1, 100.0, None)\n"
        "progress = ProgressLine(100, 10.0)\n"
        "for step in range(5000):\n"
        "    progress.update(status)\n"
        "progress.close()\n"
        "print('ended', file=sys.stderr)\n"
    )
    read_end, write_end = os.pipe()
    try:
        result = subprocess.run(
            [sys.executable, "-c", source],
            stdout=write_end,
            stderr=subprocess.PIPE,
            timeout=100,  # 5,000 updates that wait for 20 ms each take as long.
            check=True,
        )
        assert result.stderr == b"ended\n"
    finally:
        os.close(read_end)
        os.close(write_end)
