"""A task's log as the verbs read it: old lines with their times, new ones, progress."""

import time
from pathlib import Path
from typing import Optional

import pytest

from launch.agent import logs
from launch.agent.logs import LogFile
from launch.record.progress import Progress, read_progress, read_saved
from launch.record.task_log import TaskLog


class Clock:
    """Both clocks of a log file, which a test sets."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1_790_000_000.0
        monkeypatch.setattr(time, "time", lambda: self.now)
        monkeypatch.setattr(time, "monotonic", lambda: self.now)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def written(path: Path, clock: Clock, lines: "dict[float, bytes]") -> LogFile:
    """Writes lines at seconds after the clock's start; returns the open log."""
    log = LogFile(str(path))
    for secs, data in lines.items():
        clock.now = 1_790_000_000.0 + secs
        log.write(data)
    return log


def texts(log: TaskLog, *, final: bool = True) -> bytes:
    return b"".join(line.data for line in log.lines(final=final))


def test_each_line_has_the_time_at_which_it_came(tmp_path: Path, clock: Clock) -> None:
    path = tmp_path / "worker-0.log"
    written(path, clock, {0: b"a\n", 0.1: b"b\n", 60: b"c\nd\n"}).close()
    log = TaskLog(path)
    found = [(line.time - 1_790_000_000, line.data) for line in log.lines(final=True)]
    # Moments are a fifth of a second apart.
    assert found == [(0, b"a\n"), (0, b"b\n"), (60, b"c\n"), (60, b"d\n")]


def test_since_leaves_out_what_came_before(tmp_path: Path, clock: Clock) -> None:
    path = tmp_path / "worker-0.log"
    written(path, clock, {0: b"a\n", 60: b"b\n", 120: b"c\n"}).close()
    assert texts(TaskLog(path, since=1_790_000_060.0)) == b"b\nc\n"
    assert texts(TaskLog(path, since=1_790_000_061.0)) == b"c\n"
    assert texts(TaskLog(path, since=1_790_000_500.0)) == b""


def test_both_parts_of_a_rotated_log_are_read(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logs, "_LIMIT", 10)
    path = tmp_path / "worker-0.log"
    written(path, clock, {0: b"first\n", 60: b"second\n", 120: b"third\n"}).close()
    assert (tmp_path / "worker-0.log.1").read_bytes() == b"first\nsecond\n"
    assert texts(TaskLog(path)) == b"first\nsecond\nthird\n"
    assert texts(TaskLog(path, since=1_790_000_060.0)) == b"second\nthird\n"
    assert texts(TaskLog(path, since=1_790_000_120.0)) == b"third\n"


def test_new_lines_come_across_a_rotation_and_half_ones_later(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "worker-0.log"
    reading = TaskLog(path)
    assert texts(reading, final=False) == b""
    log = written(path, clock, {0: b"one\ntw"})
    assert texts(reading, final=False) == b"one\n"
    monkeypatch.setattr(logs, "_LIMIT", 8)
    log.write(b"o\nthree\n")
    log.write(b"four\nfi")
    assert texts(reading, final=False) == b"two\nthree\nfour\n"
    assert texts(reading) == b"fi"
    log.close()


def test_a_long_line_is_given_in_parts_and_a_reader_that_stops_goes_on_there(
    tmp_path: Path,
) -> None:
    path = tmp_path / "worker-0.log"
    path.write_bytes(b"x" * 200_000 + b"\n" + b"line\n" * 3)
    log = TaskLog(path)
    first = [next(log.lines(final=False)).data for _ in range(5)]
    assert [len(data) for data in first] == [1 << 16, 1 << 16, 1 << 16, 200_001 - 3 * (1 << 16), 5]
    assert texts(log) == b"line\n" * 2


def test_a_log_without_times_is_kept_as_a_whole_and_said_to_be(tmp_path: Path) -> None:
    path = tmp_path / "worker-0.log"
    path.write_bytes(b"a\nb\n")
    (tmp_path / "worker-0.times").write_bytes(b"1.5\n-3 x\n\xff 1\nnan 4\n")
    log = TaskLog(path, since=1.0)
    assert texts(log) == b"a\nb\n"
    assert log.is_untimed
    later = TaskLog(path, since=path.stat().st_mtime + 10)
    assert texts(later) == b""
    assert not later.is_untimed


@pytest.mark.parametrize(
    ("line", "progress"),
    [
        (
            "epoch 2.9/4  step 207/282  loss 0.328  accuracy 0.922  lr 0.0169  553 images/s  17s",
            Progress(207, 282, "553"),
        ),
        ("step 12  loss 2.3  1,024.5 images/s", Progress(12, None, "1,024.5")),
        # One of several asynchronous trainers has taken a step after the last one.
        ("epoch 1.0/1  step 61/60  loss 1.018", Progress(61, 61, "")),
    ],
)
def test_a_progress_line_is_read(line: str, progress: Progress) -> None:
    assert read_progress(line) == progress


@pytest.mark.parametrize(
    "line",
    [
        "training to step 3,516; output: output",
        "validation accuracy 0.3456 at step 352 (best so far)",
        "stepping 3/4",
    ],
)
def test_another_line_is_not(line: str) -> None:
    assert read_progress(line) is None


@pytest.mark.parametrize(
    ("line", "saved"),
    [
        ("saved demo/output/model.ckpt-31", "demo/output/model.ckpt-31"),
        ("saved: gs://bucket/my run/model.ckpt-31 ", "gs://bucket/my run/model.ckpt-31"),
        ("saved", None),
        ("it saved demo/output/model.ckpt-31", None),
    ],
)
def test_a_line_names_what_was_saved(line: str, saved: Optional[str]) -> None:
    assert read_saved(line) == saved
