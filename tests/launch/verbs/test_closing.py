"""The last lines of `up`."""

import sys

import pytest

from launch.record.outcome import Cause, Outcome
from launch.verbs.closing import closing_lines

SAVED = ("saved output/model.ckpt-31",)


@pytest.fixture(autouse=True)
def _as_typed(monkeypatch: pytest.MonkeyPatch) -> None:
    words = ["up", "--on", "local", "--", "--output-dir", "my output"]
    monkeypatch.setattr(sys, "orig_argv", [".venv/bin/python", "-m", "launch"], raising=False)
    monkeypatch.setattr(sys, "argv", ["launch/__main__.py", *words])


def test_a_stopped_job_ends_with_what_it_saved_and_the_command_that_continues_it() -> None:
    outcome = Outcome(130, "stopped by SIGINT", details=SAVED, cause=Cause.USER)
    assert closing_lines(outcome) == [
        "saved output/model.ckpt-31",
        "to continue: .venv/bin/python -m launch up --on local -- --output-dir 'my output'",
        "exit code 130: stopped by SIGINT",
    ]


@pytest.mark.parametrize(
    "outcome",
    [
        Outcome(0, "master/0 is done", cause=Cause.DONE),
        Outcome(3, "worker/0 on node1 failed: exit code 3", cause=Cause.TASK_FAILED),
        Outcome(129, "not followed any more; Slurm job 7 goes on", cause=Cause.USER),
    ],
)
def test_a_job_that_is_done_failed_or_goes_on_names_no_command(outcome: Outcome) -> None:
    assert [line for line in closing_lines(outcome) if line.startswith("to continue")] == []


def test_another_verb_does_not_name_its_own_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["launch/__main__.py", "attach"])
    outcome = Outcome(130, "stopped by SIGINT", details=SAVED, cause=Cause.USER)
    assert closing_lines(outcome) == [*SAVED, "exit code 130: stopped by SIGINT"]
    assert closing_lines(outcome, "python -m launch up --on local") == [
        *SAVED,
        "to continue: python -m launch up --on local",
        "exit code 130: stopped by SIGINT",
    ]
