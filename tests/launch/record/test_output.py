"""The log of a run as it is written and read: lines with their times and tasks; progress."""

import time
from pathlib import Path

import pytest

from launch.record import output
from launch.record.output import Line, LogReader, parse, utc, writer
from launch.screen.display import Display


def texts(log: LogReader, *, final: bool = True) -> list[str]:
    return [line.text for line in log.lines(final=final)]


def test_each_line_has_its_time_task_and_host(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "time", lambda: 1_790_000_000.5)
    path = tmp_path / "output.log"
    display = Display(writer(path), live=False)
    display.task_line("worker/0", "node1", "step 1/2 [x] ")
    display.note("SIGINT: stopping all tasks")
    moment = "2026-09-21T14:13:20.500Z"
    assert path.read_text() == (
        f"{moment} [worker/0 node1] step 1/2 [x] \n{moment} SIGINT: stopping all tasks\n"
    )
    assert path.stat().st_mode & 0o777 == 0o600
    assert list(LogReader(path).lines(final=True)) == [
        Line(moment, "worker/0", "node1", "step 1/2 [x] "),
        Line(moment, "", "", "SIGINT: stopping all tasks"),
    ]


def test_what_a_full_disk_or_a_traceback_leaves_is_a_line_without_a_time(tmp_path: Path) -> None:
    path = tmp_path / "output.log"
    path.write_bytes(b"[lines are missing here: x]\n2026-01-3\xff\n\n")
    found = list(LogReader(path).lines(final=True))
    assert found == [
        Line("", "", "", "[lines are missing here: x]"),
        Line("", "", "", "2026-01-3\ufffd"),
        Line("", "", "", ""),
    ]


def test_times_sort_as_texts() -> None:
    assert utc(-5.0) == "1970-01-01T00:00:00.000Z"
    assert utc(999.9) < utc(1_790_000_000.0) < utc(1_790_000_000.25)


def test_a_long_line_is_given_in_parts_and_a_reader_that_stops_goes_on_there(
    tmp_path: Path,
) -> None:
    path = tmp_path / "output.log"
    path.write_bytes(b"x" * 200_000 + b"\n" + b"line\n" * 3)
    log = LogReader(path)
    first = [len(next(log.lines(final=False)).text) for _ in range(5)]
    assert first == [1 << 16, 1 << 16, 1 << 16, 200_000 - 3 * (1 << 16), 4]
    assert texts(log) == ["line"] * 2


def test_half_a_line_comes_once_it_is_whole_or_the_log_is_over(tmp_path: Path) -> None:
    path = tmp_path / "output.log"
    log = LogReader(path)
    assert texts(log, final=False) == []
    path.write_text("one\ntw")
    assert texts(log, final=False) == ["one"]
    path.write_text("one\ntwo\nthr")
    assert texts(log, final=False) == ["two"]
    assert texts(log) == ["thr"]


def test_a_log_that_is_long_begins_anew_and_its_readers_read_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(output, "_LONGEST_LOG", 150)
    path = tmp_path / "output.log"
    log, reader = writer(path), LogReader(path)
    for number in range(3):
        log.write(f"line {number} {'x' * 20}\n")
    assert len(texts(reader)) == 3
    for number in range(3, 6):
        log.write(f"line {number} {'x' * 20}\n")
    assert [text[:6] for text in texts(reader)] == ["line 3", "line 4", "line 5"]
    assert len(texts(LogReader(path))) == 6
    assert sorted(file.name for file in tmp_path.iterdir()) == ["output.log", "output.log.1"]


def test_a_log_goes_on_once_the_disk_has_room_again(tmp_path: Path) -> None:
    path = tmp_path / "output.log"
    path.symlink_to("/dev/full")
    lost: list[str] = []
    log = writer(path, lost.append)
    log.write("lost 1\n")
    log.write("lost 2\n")
    full = f"{path}: No space left on device; it lacks lines"
    assert [parse(line).text for line in lost] == [full, "lost 1", "lost 2"]
    path.unlink()
    log.write("one\n")
    log.write("two\n")
    gap = ["", "[lines are missing here: No space left on device]"]
    assert texts(LogReader(path)) == [*gap, "one", "two"]
