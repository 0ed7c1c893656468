"""The thread that writes a task's log; a pipe that nobody reads is a disk that does not answer."""

import os
import threading
from pathlib import Path

import pytest

from launch.agent import log_writer
from launch.agent.log_writer import LogWriter
from tests.launch.agent.pipes import lines_of
from tests.launch.launcher import wait_for


def test_all_is_written_once_a_log_is_closed(tmp_path: Path) -> None:
    log = LogWriter(str(tmp_path / "logs" / "a.log"))
    for number in range(1000):
        log.write(b"%d\n" % number)
    assert not log.wait(0)
    log.close()
    assert log.wait(60)
    lines = (tmp_path / "logs" / "a.log").read_text().splitlines()
    assert lines == [str(number) for number in range(1000)]
    assert log.new_errors() == []


def test_a_disk_that_does_not_answer_holds_up_no_call_and_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_writer, "_BEHIND", 40_000)
    path = tmp_path / "log"
    os.mkfifo(path)
    log = LogWriter(str(path))  # opening it waits
    assert not log.is_behind
    for _ in range(50):
        log.write(bytes(1000))
    assert log.is_behind
    log.close()
    assert not log.wait(0.1)
    with path.open("rb") as reader:
        assert reader.read() == bytes(50_000)
    assert log.wait(60)
    assert not log.is_behind
    assert log.new_errors() == []


def test_a_log_is_written_once_the_earlier_writer_of_the_same_file_has_ended(
    tmp_path: Path,
) -> None:
    path = tmp_path / "log"
    os.mkfifo(path)
    logs = []
    for text in (b"one\n", b"two\n", b"three\n"):
        logs.append(LogWriter(str(path)))
        logs[-1].write(text)
        logs[-1].close()
    assert lines_of(path, 3) == b"one\ntwo\nthree\n"
    assert all(log.wait(60) for log in logs)


def test_errors_of_the_disk_are_told_once() -> None:
    log = LogWriter("/dev/full")
    log.write(b"lost\n")
    log.write(b"lost, too\n")
    log.close()
    assert log.wait(60)
    words = "/dev/full: No space left on device; lines are left out until that is repaired"
    assert log.new_errors() == [words]
    assert log.new_errors() == []


def test_a_place_that_cannot_be_written_is_told_without_a_line() -> None:
    log = LogWriter("/dev/null/a.log")
    wait_for(lambda: not log._errors.empty(), "error")
    (error,) = log.new_errors()
    assert error.startswith("/dev/null/a.log: Not a directory")
    log.close()
    assert log.wait(60)


def test_a_process_that_can_have_no_more_threads_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def start(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", start)
    with pytest.raises(OSError, match="^/tmp/a.log cannot be written: can't start new thread$"):
        LogWriter("/tmp/a.log")
