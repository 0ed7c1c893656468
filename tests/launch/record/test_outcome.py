"""How the end of a task or a job is described, and its exit code."""

from typing import Optional

import pytest

from launch.record.outcome import (
    Cause,
    Outcome,
    end_record,
    exit_code_of,
    read_cause,
    words_for,
)


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (0, "exit code 0"),
        (3, "exit code 3"),
        (-1, "killed by SIGHUP"),
        (-9, "killed by SIGKILL"),
        (-99, "killed by signal 99"),  # a signal without a name
        (None, "lost"),
    ],
)
def test_an_end_in_words(code: Optional[int], words: str) -> None:
    assert words_for(code) == words


@pytest.mark.parametrize(
    ("code", "exit_code"),
    # A task that was lost is a failure, and so is a ps that ended with 0 before it was asked to.
    [(3, 3), (-1, 129), (-9, 137), (-15, 143), (0, 1), (None, 1)],
)
def test_the_launchers_exit_code_is_that_of_the_failed_task(
    code: Optional[int], exit_code: int
) -> None:
    assert exit_code_of(code) == exit_code


def test_an_outcome_is_of_no_task_unless_it_says_so() -> None:
    assert Outcome(0, "master/0 is done") == Outcome(0, "master/0 is done", None, ())


def test_a_status_file_keeps_the_cause() -> None:
    record = end_record(Outcome(143, "it was asked to end", cause=Cause.PLATFORM))
    assert record == {"exit_code": 143, "reason": "it was asked to end", "cause": "platform"}
    assert read_cause(record) is Cause.PLATFORM
    assert end_record(None) == {"exit_code": None, "reason": None, "cause": None}


@pytest.mark.parametrize("status", [{}, {"exit_code": 1, "reason": "x"}, {"cause": "unheard-of"}])
def test_a_status_file_without_a_cause_that_we_know_can_be_read(status: dict[str, object]) -> None:
    assert read_cause(status) is None


def test_the_words_of_causes_in_status_files_stay() -> None:
    assert {cause.name: cause.value for cause in Cause} == {
        "DONE": "done",
        "TASK_FAILED": "task failed",
        "HOST_LOST": "host lost",
        "TIME_LIMIT": "time limit",
        "USER": "user",
        "CANCELLED": "cancelled",
        "PREEMPTED": "preempted",
        "PLATFORM": "platform",
        "LAUNCHER": "launcher",
    }
