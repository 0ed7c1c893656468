"""What the programs do with standard streams that are closed or that nobody reads."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from testbeds.processes import ROOT

TRAIN = [sys.executable, "cifar10_main.py"]
DATA = [sys.executable, "-m", "data_prep"]
LAUNCH = [sys.executable, "-m", "launch"]
OPEN_STREAMS = "from cifar10_program.streams import open_streams; open_streams()"


def run(
    command: list[str], redirections: str = "", **variables: str
) -> "subprocess.CompletedProcess[str]":
    """Runs a command with redirections of the shell, such as `>&-`."""
    return subprocess.run(
        ["bash", "-c", f'exec "$@" {redirections}', "bash", *command],
        cwd=ROOT,
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def run_unread(command: list[str], name: str) -> "subprocess.CompletedProcess[str]":
    """Runs a command whose stream of that name, `stdout` or `stderr`, is a pipe without a reader.

    The other stream is captured.
    """
    reading, writing = os.pipe()
    os.close(reading)
    ends: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, name: writing}
    try:
        process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.DEVNULL, text=True, **ends)
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
    done = run(command, "2>&-")
    assert (done.returncode, done.stdout) == (2, "")


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
    done = run([sys.executable, "-c", code, str(path)], "<&- >&- 2>&-")
    assert done.returncode == 0
    assert path.read_text() == f"True False\n/dev/null\n{path}\n/dev/null\n"


def test_a_full_disk_is_still_reported() -> None:
    done = run([*LAUNCH, "plan", "--hosts=a"], "> /dev/full")
    assert done.returncode != 0
    assert "No space left on device" in done.stderr


@pytest.mark.parametrize(
    ("encoding", "shown"), [("ascii:surrogateescape", "a\\xe4\n"), ("utf-8", "aä\n")]
)
def test_what_an_encoding_lacks_is_shown_as_an_escape(encoding: str, shown: str) -> None:
    code = f"{OPEN_STREAMS}; print('a\\xe4')"
    done = run([sys.executable, "-c", code], PYTHONIOENCODING=encoding)
    assert (done.returncode, done.stdout) == (0, shown)
