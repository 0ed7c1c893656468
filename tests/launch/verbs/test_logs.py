"""What logs, attach and up show of a run, and the last lines of up."""

import argparse
import os
import re
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from launch.agent.logs import LogFile
from launch.cluster.host_list import on_this_machine
from launch.cluster.tasks import make_job
from launch.record.outcome import Cause, Outcome
from launch.record.run_folder import RunFolder
from launch.verbs import attach, cli, moments
from launch.verbs.up import closing_lines
from launch.verbs.view import View

JOB = make_job(on_this_machine(2, 1))


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    """A run of four tasks, three of which have written lines in the last two hours."""
    folder = RunFolder.create(tmp_path, JOB)
    now = time.time()
    for task, lines in {
        "worker/0": {7000: "step 1 of worker", 30: "step 2 of worker"},
        "master/0": {6000: "step 1", 5000: "saved", 20: "step 2"},
        "ps/0": {6500: "ps serves"},
    }.items():
        log, offset, marks = folder.log_path(task), 0, ""
        for ago, text in lines.items():
            marks += f"{now - ago:.3f} {offset}\n"
            offset += len(text) + 1
        log.write_text("".join(f"{text}\n" for text in lines.values()))
        log.with_suffix(".times").write_text(marks)
    return folder


def said(run: RunFolder, capfd: pytest.CaptureFixture[str], *words: str, code: int = 0) -> str:
    """Returns what `logs` prints, on both streams."""
    assert cli.main(["logs", "--state-dir", str(run.path.parent), *words]) == code
    printed = capfd.readouterr()
    return printed.out + printed.err


def test_lines_of_all_tasks_are_merged_by_time_and_prefixed(
    run: RunFolder, capfd: pytest.CaptureFixture[str]
) -> None:
    assert said(run, capfd) == (
        "[worker/0 localhost] step 1 of worker\n"
        "[ps/0 localhost] ps serves\n"
        "[master/0 localhost] step 1\n"
        "[master/0 localhost] saved\n"
        "[worker/0 localhost] step 2 of worker\n"
        "[master/0 localhost] step 2\n"
    )


def test_one_task_has_no_prefix(run: RunFolder, capfd: pytest.CaptureFixture[str]) -> None:
    assert said(run, capfd, "master/0") == "step 1\nsaved\nstep 2\n"


def test_a_task_type_stands_for_all_its_tasks(
    run: RunFolder, capfd: pytest.CaptureFixture[str]
) -> None:
    log = LogFile(str(run.log_path("worker/1")))
    log.write(b"I am new\n")
    log.close()
    assert said(run, capfd, "worker").splitlines() == [
        "[worker/0 localhost] step 1 of worker",
        "[worker/0 localhost] step 2 of worker",
        "[worker/1 localhost] I am new",
    ]


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (["--tail", "1"], ["ps serves", "step 2 of worker", "step 2"]),
        (["--since", "1h50m"], ["ps serves", "step 1", "saved", "step 2 of worker", "step 2"]),
        (["--grep", "^step 1"], ["step 1 of worker", "step 1"]),
        (["--grep", "step", "--tail", "1"], ["step 2 of worker", "step 2"]),
        (["--since", "1h50m", "--grep", "1", "master/0"], ["step 1"]),
    ],
)
def test_tail_since_and_grep_choose_lines_of_each_task(
    run: RunFolder, capfd: pytest.CaptureFixture[str], words: "list[str]", shown: "list[str]"
) -> None:
    lines = said(run, capfd, *words).splitlines()
    assert [re.sub(r"^\[\S+ localhost\] ", "", line) for line in lines] == shown


def test_since_says_which_log_has_no_times(
    run: RunFolder, capfd: pytest.CaptureFixture[str]
) -> None:
    run.log_path("master/0").with_suffix(".times").unlink()
    assert said(run, capfd, "--since", "10m", "master/0") == (
        "step 1\nsaved\nstep 2\nnote: master/0: the times of its earlier lines are not known; "
        "--since left none of them out\n"
    )


def test_a_task_that_the_run_does_not_have_is_named_with_those_that_it_has(
    run: RunFolder, capfd: pytest.CaptureFixture[str]
) -> None:
    shown = said(run, capfd, "worker/7", code=2)
    assert "has no task worker/7; it has master/0, worker/0, worker/1, ps/0" in shown


def test_a_run_without_lines_says_so(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    folder = RunFolder.create(tmp_path, JOB)
    assert said(folder, capfd, "worker/1", code=2) == (
        f"error: worker/1 has not written anything yet: {folder.path / 'logs'}\n"
    )


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["--since", "10"], "argument --since: must be a time ago, such as 30s, 10m, 1h30m or 2d"),
        (["--grep", "("], "argument --grep: must be a regular expression, got '('"),
    ],
)
def test_a_choice_that_means_nothing_is_refused(
    capfd: pytest.CaptureFixture[str], words: "list[str]", error: str
) -> None:
    with pytest.raises(SystemExit) as refused:
        cli.main(["logs", *words])
    assert refused.value.code == 2
    assert error in capfd.readouterr().err


def test_moments_are_counted_back_or_taken_as_they_are() -> None:
    assert abs(time.time() - 5400 - moments.moment("1h30m")) < 60
    assert moments.moment("2026-01-31T12:00:00Z") == 1769860800.0
    assert moments.moment("2026-01-31T13:00+01:00") == 1769860800.0


@pytest.mark.parametrize(
    ("secs", "words"),
    [
        (-3, "0 s"), (59.9, "59 s"),
        (86399, "23 h 59 min"), (90000, "1 d 1 h"),
    ],
)  # fmt: skip
def test_an_age_has_two_units(secs: float, words: str) -> None:
    assert moments.age(secs) == words


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    """The folder of a run that began a minute ago."""
    folder = RunFolder.create(tmp_path, make_job(on_this_machine(1, 1)))
    folder.add(began=time.time() - 62)
    return folder


def rows(state: str, step: str = "") -> "dict[str, object]":
    return {"tasks": [{"task": "master/0", "host": "here", "state": state, "step": step}]}


def shown(view: View, capfd: pytest.CaptureFixture[str], *, final: bool = False) -> list[str]:
    view.show_new(final=final)
    view.close()
    return capfd.readouterr().out.splitlines()


@pytest.mark.parametrize("hides_tasks", [False, True])
def test_lines_say_that_a_start_lasts(
    hides_tasks: bool, folder: RunFolder, capfd: pytest.CaptureFixture[str]
) -> None:
    view = View(folder, live=False)
    view.hides_tasks = hides_tasks
    assert shown(view, capfd) == []  # not even its tasks are known
    folder.write_status(rows("starting"))
    (line,) = shown(view, capfd)
    assert line.startswith("1m0")
    assert line.endswith("s elapsed, no training step yet: 1 starting")


def test_nothing_is_said_of_the_start_of_a_run_that_trains_or_is_over(
    folder: RunFolder, capfd: pytest.CaptureFixture[str]
) -> None:
    view = View(folder, live=False)
    folder.write_status(rows("running", "1/9"))
    assert shown(view, capfd) == []
    folder.write_status(rows("failed"))
    assert shown(view, capfd, final=True) == []


def test_the_last_lines_of_all_tasks_are_in_the_order_of_their_times(
    folder: RunFolder, capfd: pytest.CaptureFixture[str]
) -> None:
    for task, times in (("master/0", (100, 103)), ("worker/0", (101, 102))):
        log = folder.log_path(task)
        log.write_text("".join(f"line of {moment}\n" for moment in times))
        marks = (f"{moment}.000 {12 * i}\n" for i, moment in enumerate(times))
        log.with_suffix(".times").write_text("".join(marks))
    view = View(folder, live=False, tail=3, of_tasks=True)
    lines = shown(view, capfd)
    view.close()
    assert lines == [
        "[worker/0 localhost] line of 101",
        "[worker/0 localhost] line of 102",
        "[master/0 localhost] line of 103",
    ]


def test_a_folder_that_cannot_be_written_is_told_once_until_there_is_news(
    folder: RunFolder, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    view = View(folder, live=False)

    def after(secs: float) -> list[str]:
        now[0] += secs
        return [line for line in shown(view, capfd) if "elapsed" not in line]

    assert after(60) == []  # there is room: the job may just wait
    aside = folder.path.with_name("aside")
    folder.path.rename(aside)
    assert after(9) == []
    words = "No such file or directory; nothing was written there for 10 s, so nothing new is shown"
    assert after(2) == [f"{folder.path}: {words}; the run goes on"]
    assert after(60) == []
    aside.rename(folder.path)
    folder.write_status({**rows("running"), "time": 5.0})
    assert after(2) == []
    assert view.blind == ""


def test_the_tasks_logs_are_shown_when_the_launcher_ends_before_the_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = RunFolder.create(tmp_path, make_job(on_this_machine(1, 1)))
    folder.launcher_log.write_text("[master/0 node7] early\nfollowed no more\n")
    log = folder.log_path("master/0")
    log.write_text("early\n")
    states = [(os.getpid(), ""), (None, "job 7 runs"), (None, "job 7 runs"), (None, "")]

    def late() -> None:
        log.write_text("early\nlate\n")

    def end() -> None:
        folder.write_end(Outcome(0, "master/0 is done"))
        folder.write_status({**folder.status(), "time": folder.record()["began"] + 100})

    between: list[Callable[[], object]] = [lambda: None, late, end]

    def next_state(_: float) -> None:
        states.pop(0)
        between.pop(0)()

    monkeypatch.setattr(RunFolder, "launcher_pid", lambda _: states[0][0])
    monkeypatch.setattr(attach, "without_launcher", lambda _: states[0][1])
    monkeypatch.setattr(time, "sleep", next_state)
    words = argparse.Namespace(state_dir=str(tmp_path), run=None, lines=True)
    assert attach.attach(words) == 0
    assert capfd.readouterr().out.splitlines()[2:] == [
        "[master/0 node7] early",
        "followed no more",
        "[master/0 localhost] late",
        "3 tasks, 1m40s",
        "master/0 is done",
    ]


SAVED = ("saved output/model.ckpt-31",)


@pytest.fixture
def as_typed(monkeypatch: pytest.MonkeyPatch) -> None:
    words = ["up", "--on", "local", "--", "--output-dir", "my output"]
    monkeypatch.setattr(sys, "orig_argv", [".venv/bin/python", "-m", "launch"], raising=False)
    monkeypatch.setattr(sys, "argv", ["launch/__main__.py", *words])


def test_a_stopped_job_ends_with_what_it_saved_and_the_command_that_continues_it(
    as_typed: None,
) -> None:
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
def test_a_job_that_is_done_failed_or_goes_on_names_no_command(
    outcome: Outcome, as_typed: None
) -> None:
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
