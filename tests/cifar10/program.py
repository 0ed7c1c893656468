"""Runs cifar10_main.py as a user does: in a process of its own, which ends with the test."""

import contextlib
import pathlib
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Optional

from testbeds.processes import ROOT, command, environment


def make_records(folder: pathlib.Path, size: int) -> pathlib.Path:
    """Makes synthetic records: `size` images for training and validation, and a fifth for eval."""
    subprocess.run(
        [sys.executable, "-m", "data_prep", "--source=synthetic", f"--out={folder}"]
        + [f"--synthetic-size={size}"],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    return folder


def run(
    *arguments: object, cwd: pathlib.Path, tf_config: Optional[str] = None
) -> "subprocess.CompletedProcess[str]":
    """Runs the program to its end in `cwd`, with TF_CONFIG set if `tf_config` is given."""
    variables = {} if tf_config is None else {"TF_CONFIG": tf_config}
    return subprocess.run(
        command(*arguments),
        cwd=cwd,
        env={**environment(), **variables},
        capture_output=True,
        text=True,
        timeout=240,
    )


@contextlib.contextmanager
def started(*arguments: object, cwd: pathlib.Path) -> Iterator["subprocess.Popen[str]"]:
    """Starts the program; kills it at the end if it still runs."""
    process = subprocess.Popen(
        command(*arguments),
        cwd=cwd,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def wait_for(path: pathlib.Path, pattern: str, process: "subprocess.Popen[str]") -> None:
    """Waits until the folder `path` has a file of that pattern.

    Raises:
      AssertionError: the process ended first, or 120 s passed.
    """
    deadline = time.monotonic() + 120
    while not list(path.glob(pattern)):
        if process.poll() is not None:
            out, err = process.communicate()
            raise AssertionError(f"ended with {process.returncode} before {pattern}\n{out}\n{err}")
        if time.monotonic() > deadline:
            raise AssertionError(f"no {pattern} in {path} after 120 s")
        time.sleep(0.05)


def wait_for_line(start: str, process: "subprocess.Popen[str]") -> None:
    """Reads the program's output up to a line that begins with `start`.

    Raises:
      AssertionError: the output ended without such a line.
    """
    lines = []
    for line in process.stdout or ():
        if line.startswith(start):
            return
        lines.append(line)
    raise AssertionError(f"ended before a line {start!r}\n{''.join(lines)}")


def interrupt(process: "subprocess.Popen[str]", signum: signal.Signals) -> tuple[int, str, str]:
    """Sends a signal and waits for the end; returns exit code, standard output and error."""
    process.send_signal(signum)
    out, err = process.communicate(timeout=120)
    return process.returncode, out, err
