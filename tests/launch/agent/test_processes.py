"""Processes of an agent: found by labels, ended, bounded, and its guard."""

import os
import signal
import subprocess
import sys
import time

import pytest

from launch.agent import processes

_DEAF = "import signal, time; signal.signal(15, signal.SIG_IGN); print(flush=True); time.sleep(60)"

_WITH_A_GUARD = """
from launch.agent import processes
send_home = processes.start_guard(lambda: None)
print(flush=True)
input()
send_home()
"""


def _start(code: str = _DEAF, **labels: str) -> "subprocess.Popen[bytes]":
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        env={**os.environ, **labels},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert process.stdout is not None
    process.stdout.readline()
    return process


def test_only_processes_with_all_marks_are_found() -> None:
    with _start(LAUNCH_RUN_ID="t1", LAUNCH_TASK="a") as first, _start(LAUNCH_RUN_ID="t1") as other:
        assert processes.labelled(LAUNCH_RUN_ID="t1", LAUNCH_TASK="a") == [first.pid]
        assert processes.labelled(LAUNCH_RUN_ID="t1") == sorted([first.pid, other.pid])
        assert processes.labelled(LAUNCH_RUN_ID="t") == []
        first.kill()
        other.kill()


def test_a_deaf_process_is_killed_after_the_patience() -> None:
    with _start(LAUNCH_RUN_ID="t2") as process:
        began = time.monotonic()
        ended = processes.end_all(lambda: processes.labelled(LAUNCH_RUN_ID="t2"), 0.3)
        assert ended == [process.pid]
        assert 0.3 <= time.monotonic() - began < 30  # It would sleep for 60 seconds.
        assert process.wait(60) == -9


def test_an_agent_outlives_its_guard() -> None:
    with _start(_WITH_A_GUARD, LAUNCH_RUN_ID="t3") as agent:
        (guard,) = set(processes.labelled(LAUNCH_RUN_ID="t3")) - {agent.pid}
        os.kill(guard, signal.SIGSTOP)
        try:
            with pytest.raises(subprocess.TimeoutExpired):
                agent.communicate(b"\n", timeout=0.2)
        finally:
            os.kill(guard, signal.SIGCONT)
        assert agent.wait(60) == 0
        assert processes.labelled(LAUNCH_RUN_ID="t3") == []


def test_output_errors_and_exit_code_are_collected() -> None:
    code = "import sys; print('ü'); sys.stderr.buffer.write(b'\\xff\\n'); sys.exit(3)"
    done = processes.execute([sys.executable, "-c", code], 60)
    assert (done.returncode, done.stdout, done.stderr) == (3, "ü\n", "\ufffd\n")


def test_a_command_that_does_not_end_is_killed() -> None:
    with pytest.raises(OSError, match=r"^no answer within 0\.2 s$"):
        processes.execute(["sleep", "300"], 0.2)


def test_a_process_that_a_command_leaves_behind_does_not_hold_up_its_result() -> None:
    code = "import subprocess; print(subprocess.Popen(['sleep', '300']).pid)"
    done = processes.execute([sys.executable, "-c", code], 60)
    os.kill(int(done.stdout), signal.SIGKILL)
    assert done.returncode == 0


def test_a_command_that_writes_without_end_is_killed() -> None:
    with pytest.raises(OSError, match="^its output is longer than 64 MiB$"):
        processes.execute(["yes"], 600)
