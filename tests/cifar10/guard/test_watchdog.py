"""What ends a process whose main thread cannot: real processes, and ends that are noted."""

import errno
import io
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any, Callable, Optional
from unittest import mock

import numpy as np
import pytest

from cifar10.errors import ConfigError, Stopped, TrainingError, TrainingOver
from cifar10.guard import watchdog
from cifar10.guard.watchdog import EVALUATION, STEP, Hang, StallCheck, watching
from cifar10.host.process import StopRequest
from tests.cifar10.answering import WAIT_SECS

LIMIT = 0.2


class Ends:
    """Notes how a watchdog ends the process; a test's process cannot be ended."""

    def __init__(self) -> None:
        self.found: list[tuple[str, int]] = []
        self.saved: Optional[str] = None
        self.happened, self.test_is_over = threading.Event(), threading.Event()

    def __call__(self, line: str, code: int, saved: Optional[str] = None) -> None:
        self.found.append((line, code))
        self.saved = saved
        self.happened.set()
        self.test_is_over.wait()


@pytest.fixture
def ends(monkeypatch) -> Iterator[Ends]:
    found = Ends()
    monkeypatch.setattr(watchdog, "end_process", found)
    monkeypatch.setattr(watchdog, "_PERIOD_SECS", 0.01)
    monkeypatch.setattr(watchdog, "_LAST_WORDS_SECS", 0.1)
    yield found
    found.test_is_over.set()


@pytest.mark.parametrize(
    ("error", "line", "code"),
    [
        (TrainingError("ps/0 is gone"), "training failed: ps/0 is gone", 1),
        (ConfigError("ps/0 is another job's"), "error: ps/0 is another job's", 2),
        (Stopped(15), "stopped by signal 15; run the same command to continue", 143),
        (TrainingOver(7), "training is over; the others have gone", 0),
        (
            RuntimeError("can't start new thread"),
            "training failed: this process cannot be watched (RuntimeError: can't start new "
            "thread); start this task again",
            1,
        ),
    ],
    ids=str,
)
def test_a_process_ends_as_the_main_thread_would(ends, error, line, code) -> None:
    with watching(mock.Mock(side_effect=error)):
        assert ends.happened.wait(WAIT_SECS)
    assert ends.found == [(line, code)]


def test_the_end_after_a_signal_names_the_checkpoint_of_which_the_stop_request_knows(ends) -> None:
    stop = StopRequest()
    stop.saved = "output/model.ckpt-3"
    stop._note(15)
    with watching(stop.check):
        assert ends.happened.wait(WAIT_SECS)
    assert ends.saved == "output/model.ckpt-3"


def test_what_is_true_for_a_moment_or_only_before_the_watch_ends_nothing(ends) -> None:
    looks = threading.Semaphore(0)
    times = iter(range(10**6))

    def check() -> None:
        looks.release()
        if next(times) % 3:  # A task that answers again meanwhile is not missing any more.
            raise TrainingError("ps/0 is gone")

    with watching(lambda: None):
        with watching(check):
            for _ in range(30):
                assert looks.acquire(timeout=WAIT_SECS)
        with watching(mock.Mock(side_effect=Stopped(2))):
            pass  # The main thread ends by itself.
        time.sleep(0.3)
    assert ends.found == []


def in_phase(phase: Any, limit: float = 10.0, **attributes: Any) -> StallCheck:
    """The check of a main thread in this phase."""
    found = StallCheck(limit, **attributes)
    found.begin(phase)
    return found


class Clock:
    """The time, and a process that its watchdog asks every second."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        monkeypatch.setattr(time, "monotonic", lambda: self.now)

    def run(self, check: Callable[[], None], seconds: int) -> None:
        for _ in range(seconds):
            self.now += 1.0
            check()


@pytest.fixture
def clock(monkeypatch) -> Clock:
    return Clock(monkeypatch)


@pytest.mark.parametrize(
    ("phase", "limit", "words"),
    [
        (STEP, 10, "a training step"),
        (watchdog.BETWEEN, 10, "the work between two training steps"),
        (watchdog.SAVING, 10, "saving a checkpoint"),
        (EVALUATION, 10, "an evaluation"),
        (watchdog.START, 30, "the start of training"),
        (watchdog.FIRST_STEP, 30, "the first training step"),
    ],
)
def test_a_phase_that_does_not_end_is_named(clock, phase, limit, words) -> None:
    progress = in_phase(phase)
    clock.run(progress, 1 + limit)
    with pytest.raises(Hang) as hang:
        clock.run(progress, 1)
    assert str(hang.value) == (
        f"no progress in {words} for {limit} s (--stall-timeout); above is the stack of each "
        "thread; start this task again"
    )


@pytest.mark.parametrize(
    ("phase", "limit", "heard"),
    [(STEP, 0.0, True), (None, 10.0, True), (STEP, 10.0, False)],
    ids=["off", "a wait with a limit of its own", "another task does not answer"],
)
def test_there_is_no_end_where_it_is_not_this_checks_matter(clock, phase, limit, heard) -> None:
    clock.run(in_phase(phase, limit, hears_all=lambda: heard), 1000)


def test_progress_keeps_a_process(clock) -> None:
    progress = StallCheck(10.0)
    for _ in range(100):
        progress.begin(EVALUATION)
        clock.run(progress, 10)


def test_the_time_for_which_a_process_stood_still_does_not_count(clock) -> None:
    progress = in_phase(STEP)
    for _ in range(4):
        clock.run(progress, 1)
        clock.now += 600.0
    clock.run(progress, 1)


class FullLog(io.StringIO):
    """A file on a full disk."""

    def write(self, text: str) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize("stderr", [FullLog(), None], ids=["full", "closed"])
def test_a_log_that_takes_no_more_keeps_no_process_from_its_end(ends, monkeypatch, stderr) -> None:
    monkeypatch.setattr(sys, "stderr", stderr)
    with watching(in_phase(STEP, LIMIT)):
        assert ends.happened.wait(WAIT_SECS)


@pytest.mark.parametrize(
    ("arrived", "replica", "others"),
    [
        ([6, 7, 7], 0, ""),
        ([7, 6, 7], 1, ""),
        ([7, 6, 6], 0, "worker/0, worker/1"),
        ([7, 6, 7], 2, "worker/0"),
        ([7, 7, 7], 2, "master/0"),
        ([7, 7, 7], 0, ""),
    ],
)
def test_a_process_that_waits_for_others_names_them_and_does_not_end(
    clock, capsys, arrived, replica, others
) -> None:
    replicas = ["master/0", "worker/0", "worker/1"]
    progress = in_phase(STEP, replicas=replicas, replica=replica)
    progress.session = mock.Mock(run=lambda rounds: np.array([7, *rounds]))
    progress.rounds = arrived
    if not others:
        with pytest.raises(Hang):
            clock.run(progress, 12)
        return
    clock.run(progress, 1000)
    line = f"a training step has waited for {others} for 10 s (--stall-timeout)\n"
    assert capsys.readouterr().err == line


def test_a_long_step_looks_again_whether_its_round_is_over(clock) -> None:
    asked = mock.Mock(return_value=np.array([7, 7]))
    progress = in_phase(STEP, 100.0, session=mock.Mock(run=asked), rounds=[7])
    clock.run(progress, 4)
    assert asked.call_count == 0
    clock.run(progress, 17)
    assert asked.call_count == 4
    progress.begin(watchdog.SAVING)
    clock.run(progress, 17)
    assert asked.call_count == 4


def test_a_session_that_does_not_answer_names_nobody(clock) -> None:
    session = mock.Mock()
    session.run.side_effect = RuntimeError("Attempted to use a closed Session.")
    progress = in_phase(STEP, replicas=["master/0"], session=session, rounds=[7])
    with pytest.raises(Hang):
        clock.run(progress, 12)


HANGS = """
import sys, time
from cifar10.guard.watchdog import EVALUATION, StallCheck, watching

def hangs_for_ever():
    time.sleep(1000)

activity = StallCheck(0.5)
activity.begin(EVALUATION)
with watching(activity):
    hangs_for_ever()
"""


def test_a_process_that_hangs_prints_its_stacks_and_ends_with_exit_code_1(forks) -> None:
    ended = forks.run_code(HANGS)
    assert ended.returncode == 1
    assert "in hangs_for_ever" in ended.stderr
    assert ended.stderr.splitlines()[-1] == (
        "training failed: no progress in an evaluation for 0.5 s (--stall-timeout); above is the "
        "stack of each thread; start this task again"
    )
