"""A process without progress ends by itself, unless it waits for another one."""

import contextlib
import errno
import io
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any, Callable, Optional

import pytest

from cifar10.host.activity import (
    BETWEEN,
    EVALUATION,
    FIRST_STEP,
    SAVING,
    START,
    STEP,
    Activity,
    OwnTime,
)
from cifar10.run import stall_watch
from cifar10.run.hooks.step_probe import NoAnswer, StepProbe
from cifar10.run.stall_watch import Stall, StallWatch, look_into_step

LIMIT = 0.2
WAIT_SECS = 30.0
QUIET_SECS = 4 * LIMIT  # for what must not happen


class Ends:
    """Notes how a watch ends the process; a test's process cannot be ended."""

    def __init__(self) -> None:
        self.words: list[str] = []
        self.codes: list[int] = []
        self.happened, self.test_is_over = threading.Event(), threading.Event()

    def __call__(self, words: Callable[[], str], code: int) -> None:
        self.words.append(words())
        self.codes.append(code)
        self.happened.set()
        self.test_is_over.wait()


@pytest.fixture
def ends(monkeypatch) -> Iterator[Ends]:
    found = Ends()
    monkeypatch.setattr(stall_watch, "end_process", found)
    yield found
    found.test_is_over.set()


@contextlib.contextmanager
def beating(noted: Activity, phase: Optional[str]) -> Iterator[None]:
    """Notes progress all the time."""
    ended = threading.Event()

    def beat() -> None:
        while not ended.wait(LIMIT / 20):
            noted.begin(phase)

    thread = threading.Thread(target=beat)
    thread.start()
    yield
    ended.set()
    thread.join()


@pytest.mark.parametrize(
    ("phase", "limit", "words"),
    [
        (STEP, "0.2", "a training step"),
        (BETWEEN, "0.2", "the work between two training steps"),
        (SAVING, "0.2", "saving a checkpoint"),
        (EVALUATION, "0.2", "an evaluation"),
        (START, "0.6", "the start of training"),
        (FIRST_STEP, "0.6", "the first training step"),
    ],
)
def test_a_phase_that_does_not_end_is_named(ends, capfd, phase, limit, words) -> None:
    noted = Activity()
    noted.begin(phase)
    with StallWatch(noted, LIMIT):
        assert ends.happened.wait(WAIT_SECS)
    assert ends.codes == [1]
    assert ends.words == [
        f"training failed: no progress in {words} for {limit} s (--stall-timeout); above is the "
        "stack of each thread; start this task again"
    ]
    assert "test_a_phase_that_does_not_end_is_named" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("phase", "seconds", "heard"),
    [(STEP, 0.0, True), (None, LIMIT, True), (STEP, LIMIT, False)],
    ids=["off", "a wait with a limit of its own", "another task does not answer"],
)
def test_there_is_no_end_where_it_is_not_this_watchs_matter(ends, phase, seconds, heard) -> None:
    noted = Activity()
    noted.begin(phase)
    with StallWatch(noted, seconds, is_heard=lambda: heard):
        assert not ends.happened.wait(QUIET_SECS)


def test_progress_keeps_a_process(ends) -> None:
    noted = Activity()
    # The limit is far above the time that a thread may have to wait for its turn.
    with beating(noted, EVALUATION), StallWatch(noted, 8 * LIMIT):
        assert not ends.happened.wait(10 * LIMIT)


def test_the_limit_is_at_least_three_times_what_a_phase_has_taken_before(monkeypatch) -> None:
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    noted = Activity()
    watch = StallWatch(noted, 10.0)
    for seconds, phase in ((0.0, SAVING), (50.0, STEP), (2.0, STEP)):
        now[0] += seconds
        noted.begin(phase)
    assert watch.limit == 10.0
    noted.begin(SAVING)
    assert watch.limit == 150.0
    noted.begin(START)
    assert watch.limit == 30.0


def test_the_clock_leaves_standstills_out_while_a_watch_lasts() -> None:
    noted = Activity()
    clock: OwnTime = noted.time
    for _ in range(2):  # one for training, one for the figures
        with StallWatch(noted, 2.0):
            assert clock._longest_gap == 0.4
        assert clock._longest_gap is None


def test_a_process_that_waits_for_another_ends_after_that_one(ends, capfd) -> None:
    noted = Activity()
    noted.begin(STEP)
    with StallWatch(noted, LIMIT, lambda: Stall(STEP, "the gradients of worker/1")):
        assert ends.happened.wait(WAIT_SECS)
    (words,) = ends.words
    assert words.startswith(
        "training failed: a training step has waited for the gradients of worker/1 for 0.8 s "
        "(--stall-timeout); "
    )
    first = capfd.readouterr().err.splitlines()[0]
    assert first == (
        "a training step has waited for the gradients of worker/1 for 0.2 s (--stall-timeout)"
    )


class FullLog(io.StringIO):
    """A file on a full disk."""

    def write(self, text: str) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize("stderr", [FullLog(), None], ids=["full", "closed"])
def test_a_log_that_takes_no_more_keeps_no_process_from_its_end(ends, monkeypatch, stderr) -> None:
    noted = Activity()
    noted.begin(STEP)
    monkeypatch.setattr(sys, "stderr", stderr)
    with StallWatch(noted, LIMIT, lambda: Stall(STEP, "the gradients of worker/1")):
        assert ends.happened.wait(WAIT_SECS)


def test_a_worker_that_waits_for_its_master_does_not_end(ends, capfd) -> None:
    noted = Activity()
    noted.begin(STEP)
    looks = threading.Semaphore(0)

    def look() -> Stall:
        looks.release()
        return Stall(STEP, "master/0 to end the step", may_end=False)

    with StallWatch(noted, LIMIT, look):
        for _ in range(5):
            assert looks.acquire(timeout=WAIT_SECS)
        assert not ends.happened.wait(QUIET_SECS)
    said = capfd.readouterr().err
    words = "a training step has waited for master/0 to end the step for 0.2 s (--stall-timeout)"
    assert said == f"{words}\n"


class State(StepProbe):
    """A step in a given state."""

    def __init__(self, waits: bool, arrived: Optional[list[bool]], answers: bool = True) -> None:
        super().__init__(Activity())
        self._waits, self._arrived, self._answers = waits, arrived, answers

    def waits_for_input(self) -> bool:
        if not self._answers:
            raise NoAnswer("reading the state of the step took longer than 5 s")
        return self._waits

    def standing(self) -> Optional[list[bool]]:
        return self._arrived


TRAINERS = ["master/0", "worker/0", "worker/1"]


@pytest.mark.parametrize(
    ("state", "replica", "stall"),
    [
        (State(True, None), 0, Stall("a training step, which waits for its input,")),
        (State(True, [True, False, True]), 1, Stall("a training step, which waits for its input,")),
        (State(False, None), 0, Stall("a training step")),
        (State(False, [False, True, True]), 0, Stall("a training step")),
        (State(False, [True, False, True]), 1, Stall("a training step")),
        (
            State(False, [True, False, True]),
            0,
            Stall("a training step", "the gradients of worker/0"),
        ),
        (
            State(False, [True, False, True]),
            2,
            Stall("a training step", "master/0 to end the step", False),
        ),
        (State(False, [True, True, True]), 0, Stall("a training step")),
        (
            State(False, None, answers=False),
            0,
            Stall("a training step, whose variables cannot be read,"),
        ),
    ],
)
def test_who_is_waited_for_is_read_from_the_step(state, replica, stall: Any) -> None:
    noted = Activity()
    noted.begin(STEP)
    assert look_into_step(noted, state, TRAINERS, replica) == stall


HANGS = """
import sys, time
from cifar10.host.activity import EVALUATION, Activity
from cifar10.run.stall_watch import StallWatch

def hangs_for_ever():
    time.sleep(1000)

noted = Activity()
noted.begin(EVALUATION)
with StallWatch(noted, 0.5):
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
