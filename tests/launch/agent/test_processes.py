"""Finding processes by their marks, and ending them."""

import os
import subprocess
import sys
import time

from launch.agent import processes

_DEAF = "import signal, time; signal.signal(15, signal.SIG_IGN); print(flush=True); time.sleep(60)"


def _start(**marks: str) -> "subprocess.Popen[bytes]":
    process = subprocess.Popen(
        [sys.executable, "-c", _DEAF], env={**os.environ, **marks}, stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    process.stdout.readline()
    return process


def test_only_processes_with_all_marks_are_found() -> None:
    with _start(LAUNCH_RUN_ID="t1", LAUNCH_TASK="a") as one, _start(LAUNCH_RUN_ID="t1") as other:
        assert processes.marked(LAUNCH_RUN_ID="t1", LAUNCH_TASK="a") == [one.pid]
        assert processes.marked(LAUNCH_RUN_ID="t1") == sorted([one.pid, other.pid])
        assert processes.marked(LAUNCH_RUN_ID="t") == []
        one.kill()
        other.kill()


def test_a_deaf_process_is_killed_after_the_patience() -> None:
    with _start(LAUNCH_RUN_ID="t2") as process:
        began = time.monotonic()
        ended = processes.end_all(lambda: processes.marked(LAUNCH_RUN_ID="t2"), 0.3)
        assert ended == [process.pid]
        assert 0.3 <= time.monotonic() - began < 2
        assert process.wait(5) == -9


def test_one_that_has_ended_already_is_no_error() -> None:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    processes.send(process.pid, 15)
    processes.send(process.pid, 15, group=True)
