"""Processes of an agent: found by marks, ended, bounded, aside, and its signals and guard."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import pytest

from launch.agent import bounded_run, processes
from launch.agent.aside import Asides
from launch.agent.machine import Machine

_DEAF = "import signal, time; signal.signal(15, signal.SIG_IGN); print(flush=True); time.sleep(60)"

_WITH_A_GUARD = """
from launch.agent import processes
send_home = processes.start_guard("t3", "here", lambda: None)
print(flush=True)
input()
send_home()
"""


def _start(code: str = _DEAF, **marks: str) -> "subprocess.Popen[bytes]":
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        env={**os.environ, **marks},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
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
        assert 0.3 <= time.monotonic() - began < 30  # It would sleep for 60 seconds.
        assert process.wait(60) == -9


def test_an_agent_outlives_its_guard() -> None:
    with _start(_WITH_A_GUARD, LAUNCH_RUN_ID="t3") as agent:
        (guard,) = set(processes.marked(LAUNCH_RUN_ID="t3")) - {agent.pid}
        os.kill(guard, signal.SIGSTOP)
        try:
            with pytest.raises(subprocess.TimeoutExpired):
                agent.communicate(b"\n", timeout=0.2)
        finally:
            os.kill(guard, signal.SIGCONT)
        assert agent.wait(60) == 0
        assert processes.marked(LAUNCH_RUN_ID="t3") == []


def _answer(work: Callable[[], Any], secs: float = 60) -> Any:
    """Runs a function aside, and returns what is known of it in the end."""
    machine = Machine()
    asides = Asides(machine)
    found: list[Any] = []
    asides.run(work, found.append, secs)
    (child,) = asides._running.values()
    while not found:
        machine.wait(0.05)
        asides.turn()
    os.waitpid(child.pid, 0)
    assert not asides._running
    return found[0]


def test_what_the_function_returns_arrives() -> None:
    assert _answer(lambda: {"words": "x" * 300_000}) == {"words": "x" * 300_000}


@pytest.mark.parametrize(
    "work", [lambda: os.kill(os.getpid(), signal.SIGKILL), lambda: 1 / 0, object]
)
def test_a_function_that_fails_has_no_answer(work: Callable[[], Any]) -> None:
    assert _answer(work) is None


def test_a_function_that_is_late_is_killed() -> None:
    assert _answer(lambda: time.sleep(300), secs=0.1) is None


def test_a_function_is_out_of_the_reach_of_signals_to_the_agent() -> None:
    def work() -> list[int]:
        os.kill(os.getpid(), signal.SIGTERM)
        return [os.getsid(0), os.getpid()]

    session, pid = _answer(work)
    assert session == pid != os.getsid(0)


def test_the_end_takes_no_answer() -> None:
    machine = Machine()
    asides = Asides(machine)
    found: list[Any] = []
    asides.run(lambda: time.sleep(300), found.append, 60)
    (child,) = asides._running.values()
    asides.end()
    assert os.waitpid(child.pid, 0)[1] == signal.SIGKILL
    machine.wait(0)
    assert found == []


_AGENT = """
import os, signal, subprocess, sys
from launch.agent.machine import Machine

asked = []
machine = Machine()
machine.watch_signals(lambda: asked.append(True))
for signum in (signal.SIGCHLD, signal.SIGINT, signal.SIGHUP):
    os.kill(os.getpid(), signum)
machine.wait(0)
os.kill(os.getpid(), signal.SIGTERM)
print(len(asked))
for secs in (5, 0):
    machine.wait(secs)
    print(len(asked), flush=True)
subprocess.run([sys.executable, "-c", "import signal; print(signal.getsignal(signal.SIGINT))"])
"""


def test_sigterm_waits_until_the_agent_does_nothing_else_and_only_tasks_can_take_ctrl_c() -> None:
    """SIGTERM may come in the middle of the writing of a message."""
    done = subprocess.run([sys.executable, "-c", _AGENT], stdout=subprocess.PIPE, check=True)
    assert done.stdout.decode() == f"0\n1\n1\n{signal.default_int_handler}\n"


def python(code: str) -> list[str]:
    return [sys.executable, "-c", code]


def test_output_errors_and_exit_code_are_collected() -> None:
    code = "import sys; print('ü'); sys.stderr.buffer.write(b'\\xff\\n'); sys.exit(3)"
    done = bounded_run.run(python(code), 60)
    assert (done.returncode, done.stdout, done.stderr) == (3, "ü\n", "\ufffd\n")


def test_a_command_that_prints_without_end_is_killed() -> None:
    for stream in ("stdout", "stderr"):
        code = f"import sys\nwhile True: sys.{stream}.write('x' * 65536)"
        with pytest.raises(OSError, match="python.* printed more than 16 MiB"):
            bounded_run.run(python(code))


def test_a_command_that_does_not_end_is_killed() -> None:
    with pytest.raises(subprocess.TimeoutExpired):
        bounded_run.run(["sleep", "300"], 0.2)
    with pytest.raises(subprocess.TimeoutExpired):
        bounded_run.run(["sh", "-c", "exec >&- 2>&-; exec sleep 300"], 0.2)


def test_a_process_in_the_background_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bounded_run, "_DRAIN_SECS", 0.1)
    began = time.monotonic()
    done = bounded_run.run(["sh", "-c", "echo one; sleep 30 & echo $! >&2; exit 3"])
    os.kill(int(done.stderr), signal.SIGKILL)
    assert (done.returncode, done.stdout) == (3, "one\n")
    assert time.monotonic() - began < 15  # seconds


def test_a_process_in_the_background_that_goes_on_writing_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bounded_run, "_DRAIN_SECS", 0.1)
    script = "(while sleep 0.01; do echo x; done) & exit 3"
    began = time.monotonic()
    done = bounded_run.run(["sh", "-c", script], 15)  # It ends at its next line, by SIGPIPE.
    assert done.returncode == 3
    assert set(done.stdout.split()) == {"x"}
    assert time.monotonic() - began < 10  # seconds


def test_a_command_that_is_not_there_is_an_error() -> None:
    with pytest.raises(FileNotFoundError):
        bounded_run.run(["/nowhere/tool"])
