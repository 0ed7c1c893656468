"""The log file of a task, and the thread that writes it.

A pipe that nobody reads is a disk that does not answer.
"""

import os
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from launch.agent import logs
from launch.agent.logs import LogFile, LogWriter
from launch.agent.tasks import Logs
from tests.launch.agent.scene import lines_of
from tests.launch.launcher import wait_for


def test_a_log_goes_on_where_it_was(tmp_path: Path) -> None:
    for text in (b"one\n", b"two\n"):
        log = LogFile(str(tmp_path / "logs" / "a.log"))
        log.write(text)
        log.close()
    assert (tmp_path / "logs" / "a.log").read_text() == "one\ntwo\n"
    assert (tmp_path / "logs" / "a.log").stat().st_mode & 0o077 == 0


def test_a_log_goes_on_once_the_disk_has_room_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    path = tmp_path / "a.log"
    path.symlink_to("/dev/full")
    log = LogFile(str(path))
    log.write(b"lost\n")
    assert log.new_error() is not None
    now[0] += 60  # and the disk is still full
    log.write(b"lost\n")
    path.unlink()
    now[0] += 59
    log.write(b"lost\n")
    assert not path.exists()
    now[0] += 1
    log.write(b"one\n")
    log.write(b"two\n")
    assert log.new_error() is None
    assert path.read_text() == "\n[lines are missing here: No space left on device]\none\ntwo\n"
    path.unlink()
    path.symlink_to("/dev/full")
    log.close()
    log.write(b"after the end\n")
    assert log.new_error() is None


def test_a_log_never_grows_beyond_two_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logs, "_LIMIT", 100)
    log = LogFile(str(tmp_path / "a.log"))
    for i in range(100):
        log.write(f"line {i:03}\n".encode())
    log.close()
    names = ["a.log", "a.log.1"]
    assert sorted(path.name for path in tmp_path.iterdir()) == names
    kept = (tmp_path / "a.log.1").read_text() + (tmp_path / "a.log").read_text()
    assert kept.endswith("line 098\nline 099\n")
    assert len(kept) <= 220


def test_a_disk_that_does_not_answer_holds_up_no_call_and_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logs, "_BEHIND", 40_000)
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


def test_a_place_that_cannot_be_written_is_told_without_a_line() -> None:
    log = LogWriter("/dev/null/a.log")
    wait_for(lambda: not log._errors.empty(), "error")
    words = "Not a directory; lines are left out until that is repaired"
    assert log.new_errors() == [f"/dev/null/a.log: {words}"]
    assert log.new_errors() == []
    log.close()
    assert log.wait(60)


class Told:
    """The logs of an agent, a task with a log that a test sets, and what the launcher is told."""

    def __init__(self) -> None:
        self.notes: list[str] = []
        self.logs = Logs(self.notes.append)
        log = SimpleNamespace(is_behind=True, wait=lambda secs: False, new_errors=list)
        self.task: Any = SimpleNamespace(name="worker/0", signals=[], log=log)


def test_the_output_of_a_task_is_not_read_while_its_log_is_behind() -> None:
    told = Told()
    assert told.logs.hold(told.task)
    assert told.logs.turn([told.task]) == []
    told.task.log.is_behind = False
    assert told.logs.turn([told.task]) == [told.task]
    assert told.logs.turn([told.task]) == []
    assert not told.logs.hold(told.task)


def test_a_task_that_is_to_end_can_write_although_its_log_is_behind() -> None:
    told = Told()
    assert told.logs.hold(told.task)
    told.task.signals.append(15)
    assert told.logs.turn([told.task]) == [told.task]
    assert not told.logs.hold(told.task)


def test_the_errors_of_a_log_that_is_written_after_the_end_are_told() -> None:
    told = Told()
    told.logs.close(told.task, 0)
    assert told.logs.has_unwritten
    told.task.log.new_errors = lambda: ["the disk is full"]  # once it answers
    told.task.log.wait = lambda secs: True
    told.logs.turn([])
    assert told.notes == ["worker/0: the disk is full, but the job goes on"]
    assert not told.logs.has_unwritten
