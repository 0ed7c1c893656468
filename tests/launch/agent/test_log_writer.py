"""The thread that writes a task's log; a pipe that nobody reads is a disk that does not answer."""

import os
import time
from pathlib import Path

import pytest

from launch.agent import log_writer
from launch.agent.log_writer import LogWriter
from tests.launch.launcher import wait_for

_GAP = b"\n[lines are missing here: the disk did not answer]\n"


def test_all_is_written_when_the_log_is_closed(tmp_path: Path) -> None:
    log = LogWriter(str(tmp_path / "logs" / "a.log"))
    for number in range(1000):
        log.write(b"%d\n" % number)
    log.close()
    lines = (tmp_path / "logs" / "a.log").read_text().splitlines()
    assert lines == [str(number) for number in range(1000)]
    assert log.new_error() is None


def test_a_disk_that_does_not_answer_holds_up_no_write_and_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_writer, "_CLOSE_SECS", 0.1)
    path = tmp_path / "log"
    os.mkfifo(path)
    log = LogWriter(str(path))  # opening it waits
    for _ in range(50):
        log.write(bytes(1000))
    log.close()  # does not wait for the disk either
    assert path.read_bytes() == bytes(50_000)
    assert log.new_error() is None


def test_what_waits_in_memory_is_limited_and_the_log_says_where_lines_are_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_writer, "_MOST_WAITING", 1000)
    path = tmp_path / "log"
    os.mkfifo(path)
    log = LogWriter(str(path))
    kept, dropped, after = b"a" * 1001, b"b", b"c"
    log.write(kept)
    log.write(dropped)
    log.write(dropped)
    assert log.new_error() == f"{path}: the disk does not answer; lines are missing in it"
    assert log.new_error() is None
    with path.open("rb") as reader:
        assert reader.read(len(kept)) == kept
        wait_for(lambda: log._written == len(kept), "what was written")
        log.write(after)
        log.close()
        assert reader.read() == _GAP + after
    assert log.new_error() is None


def test_an_error_of_the_disk_is_told_once() -> None:
    log = LogWriter("/dev/full")
    log.write(b"lost\n")
    log.write(b"lost, too\n")
    log.close()
    words = "/dev/full: No space left on device; lines are missing in it until that is repaired"
    assert log.new_error() == words
    assert log.new_error() is None


def test_a_place_that_cannot_be_written_is_told_without_a_line() -> None:
    log = LogWriter("/dev/null/a.log")
    deadline = time.monotonic() + 60
    while (error := log.new_error()) is None:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert error.startswith("/dev/null/a.log: Not a directory")
    log.close()
