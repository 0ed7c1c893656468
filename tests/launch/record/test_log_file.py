"""A log file: who can read it, its size, and a full disk."""

import time
from pathlib import Path

import pytest

from launch.record import log_file
from launch.record.log_file import LogFile


def test_a_log_goes_on_where_it_was_and_is_its_owners_alone(tmp_path: Path) -> None:
    for text in (b"one\n", b"two\n"):
        log = LogFile(str(tmp_path / "a.log"))
        log.write(text)
        log.close()
    assert (tmp_path / "a.log").read_text() == "one\ntwo\n"
    assert (tmp_path / "a.log").stat().st_mode & 0o077 == 0


def test_a_log_goes_on_once_the_disk_has_room_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    path = tmp_path / "a.log"
    path.symlink_to("/dev/full")
    log = LogFile(str(path))
    log.write(b"lost\n")
    now[0] += 60  # and the disk is still full
    log.write(b"lost\n")
    path.unlink()
    now[0] += 59
    log.write(b"lost\n")
    assert not path.exists()
    now[0] += 1
    log.write(b"one\n")
    log.write(b"two\n")
    assert path.read_text() == "\n[lines are missing here: No space left on device]\none\ntwo\n"
    log.close()


def test_a_log_never_grows_beyond_two_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_file, "_LIMIT", 100)
    log = LogFile(str(tmp_path / "a.log"))
    for i in range(100):
        log.write(f"line {i:03}\n".encode())
    log.close()
    names = ["a.log", "a.log.1"]
    assert sorted(path.name for path in tmp_path.iterdir()) == names
    kept = (tmp_path / "a.log.1").read_text() + (tmp_path / "a.log").read_text()
    assert kept.endswith("line 098\nline 099\n")
    assert len(kept) <= 220
