"""Commands whose output is collected."""

import os
import signal
import subprocess
import sys
import time

import pytest

from launch.agent import bounded_run


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


def test_a_process_in_the_background_is_not_waited_for() -> None:
    began = time.monotonic()
    done = bounded_run.run(["sh", "-c", "echo one; sleep 30 & echo $! >&2; exit 3"])
    os.kill(int(done.stderr), signal.SIGKILL)
    assert (done.returncode, done.stdout) == (3, "one\n")
    assert time.monotonic() - began < 15  # seconds


def test_a_process_in_the_background_that_goes_on_writing_is_not_waited_for() -> None:
    script = "(while sleep 0.01; do echo x; done) & exit 3"
    began = time.monotonic()
    done = bounded_run.run(["sh", "-c", script], 15)  # It ends at its next line, by SIGPIPE.
    assert done.returncode == 3
    assert set(done.stdout.split()) == {"x"}
    assert time.monotonic() - began < 10  # seconds


def test_the_limit_is_that_of_the_command_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded_run, "_DRAIN_SECS", 1.0)
    done = bounded_run.run(["sh", "-c", "sleep 30 & echo $! >&2"], 0.5)
    os.kill(int(done.stderr), signal.SIGKILL)
    assert done.returncode == 0


def test_output_that_is_read_late_is_complete() -> None:
    code = "import sys; sys.stdout.write('x' * 60_000)"  # a pipe holds it

    def wait(process: "subprocess.Popen[bytes]") -> None:
        process.wait(60)

    for _ in range(3):
        assert len(bounded_run.run(python(code), started=wait).stdout) == 60_000


def test_a_command_that_is_not_there_is_an_error() -> None:
    with pytest.raises(FileNotFoundError):
        bounded_run.run(["/nowhere/tool"])
