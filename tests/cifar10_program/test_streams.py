"""Standard streams that are closed or that nobody reads, and durations in lines."""

import math
import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from cifar10_program.streams import format_duration
from tests import shell

TRAIN = [sys.executable, "cifar10_main.py"]
DATA = [sys.executable, "-m", "data_prep"]
LAUNCH = [sys.executable, "-m", "launch"]
OPEN_STREAMS = "from cifar10_program.streams import open_streams; open_streams()"


def run_unread(command: list[str], name: str) -> "subprocess.CompletedProcess[str]":
    """Runs a command whose stream of that name, `stdout` or `stderr`, is a pipe without a reader.

    The other stream is captured.
    """
    reading, writing = os.pipe()
    os.close(reading)
    ends: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, name: writing}
    try:
        process = subprocess.Popen(
            command, cwd=shell.ROOT, stdin=subprocess.DEVNULL, text=True, **ends
        )
        out, err = process.communicate(timeout=60)
        return subprocess.CompletedProcess(command, process.returncode, out, err)
    finally:
        os.close(writing)


@pytest.mark.parametrize(
    "command",
    [
        [*TRAIN, "--nope"],
        [*DATA, "verify", "--nope"],
        [*LAUNCH, "status", "--nope"],
        [sys.executable, "generate_cifar10_tfrecords.py", "--nope"],
    ],
)
def test_a_mistake_gives_exit_code_2_though_standard_error_is_closed(command: list[str]) -> None:
    assert shell.run(f"{shlex.join(command)} 2>&-", shell.ROOT, exit_code=2).stdout == ""


@pytest.mark.parametrize(
    "command", [[*TRAIN, "--output-dir=\udcff"], [*DATA, "verify", "/nowhere"], [*LAUNCH, "plan"]]
)
def test_a_mistake_gives_exit_code_2_though_nobody_reads_the_error(command: list[str]) -> None:
    done = run_unread(command, "stderr")
    assert (done.returncode, done.stdout) == (2, "")


@pytest.mark.parametrize(
    "command", [[*TRAIN, "--help"], [*DATA, "--print-completion=bash"], [*LAUNCH, "--version"]]
)
def test_what_nobody_reads_is_no_error(command: list[str]) -> None:
    done = run_unread(command, "stdout")
    assert (done.returncode, done.stderr) == (0, "")


def test_streams_that_are_closed_become_dev_null_for_child_processes_too(tmp_path: Path) -> None:
    code = (
        f"import os, subprocess, sys; {OPEN_STREAMS};"
        "print('lost'); print('lost', file=sys.stderr); assert sys.stdin.read() == '';"
        "file = open(sys.argv[1], 'w');"
        "print(file.fileno() > 2, sys.stdout.isatty(), file=file, flush=True);"
        "subprocess.run(['readlink', *(f'/proc/self/fd/{n}' for n in range(3))], stdout=file);"
        "subprocess.run(['readlink', '/proc/self/fd/1'], stdout=None, stderr=file)"
    )
    path = tmp_path / "seen"
    command = shlex.join([sys.executable, "-c", code, str(path)])
    shell.run(f"{command} <&- >&- 2>&-", shell.ROOT)
    assert path.read_text() == f"True False\n/dev/null\n{path}\n/dev/null\n"


def test_a_full_disk_is_still_reported() -> None:
    command = shlex.join([*LAUNCH, "plan", "--hosts=a"])
    done = shell.run(f"{command} > /dev/full", shell.ROOT, exit_code=1)
    assert "No space left on device" in done.stderr


@pytest.mark.parametrize(
    ("encoding", "shown"), [("ascii:surrogateescape", "a\\xe4\n"), ("utf-8", "aä\n")]
)
def test_what_an_encoding_lacks_is_shown_as_an_escape(encoding: str, shown: str) -> None:
    command = shlex.join([sys.executable, "-c", f"{OPEN_STREAMS}; print('a\\xe4')"])
    done = shell.run(command, shell.ROOT, env={"PYTHONIOENCODING": encoding})
    assert done.stdout == shown


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
        (math.nan, "?"),
    ],
)
def test_duration_has_its_two_largest_units(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text
