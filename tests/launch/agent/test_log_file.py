"""The log file of a task."""

from pathlib import Path

import pytest

from launch.agent import log_file
from launch.agent.log_file import LogFile


def test_a_log_goes_on_where_it_was(tmp_path: Path) -> None:
    for text in (b"one\n", b"two\n"):
        log = LogFile(str(tmp_path / "logs" / "a.log"))
        log.write(text)
        log.close()
    assert (tmp_path / "logs" / "a.log").read_text() == "one\ntwo\n"
    assert (tmp_path / "logs" / "a.log").stat().st_mode & 0o077 == 0


def test_a_full_disk_is_told_once_and_ends_only_the_log() -> None:
    log = LogFile("/dev/full")
    log.write(b"lost\n")
    assert log.new_error() == "/dev/full: No space left on device; its log stops here"
    log.write(b"lost, too\n")
    assert log.new_error() is None


def test_a_place_that_cannot_be_written_is_no_exception() -> None:
    error = LogFile("/dev/null/a.log").new_error()
    assert error == "/dev/null/a.log: Not a directory; its log stops here"


def test_a_log_never_grows_beyond_two_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_file, "_LIMIT", 100)
    log = LogFile(str(tmp_path / "a.log"))
    for i in range(100):
        log.write(f"line {i:03}\n".encode())
    log.close()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.log", "a.log.1"]
    kept = (tmp_path / "a.log.1").read_text() + (tmp_path / "a.log").read_text()
    assert kept.endswith("line 098\nline 099\n")
    assert len(kept) <= 220
