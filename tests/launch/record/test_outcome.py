"""How ends are told, and with which exit code."""

from typing import Optional

import pytest

from launch.record.outcome import Outcome, exit_code_of, words_for


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (0, "exit code 0"),
        (3, "exit code 3"),
        (-1, "killed by SIGHUP"),
        (-9, "killed by SIGKILL"),
        (-99, "killed by signal 99"),  # no name
        (None, "lost"),
    ],
)
def test_an_end_in_words(code: Optional[int], words: str) -> None:
    assert words_for(code) == words


@pytest.mark.parametrize(
    ("code", "exit_code"),
    # A ps that ends with 0 although nobody asked it to, and a task that was lost, are failures.
    [(3, 3), (-1, 129), (-9, 137), (-15, 143), (0, 1), (None, 1)],
)
def test_the_launchers_exit_code_is_that_of_the_failed_task(
    code: Optional[int], exit_code: int
) -> None:
    assert exit_code_of(code) == exit_code


def test_an_outcome_is_of_no_task_unless_it_says_so() -> None:
    assert Outcome(0, "master/0 is done") == Outcome(0, "master/0 is done", None, ())
