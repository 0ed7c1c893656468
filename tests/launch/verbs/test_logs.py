"""What logs, attach and up show of a run, and the last lines of up."""

import argparse
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from launch.cluster.host_list import on_this_machine
from launch.cluster.tasks import make_job
from launch.record.outcome import Cause, Outcome
from launch.record.output import utc
from launch.record.run_folder import RunFolder
from launch.verbs import cli, flags, follow
from launch.verbs.follow import View
from launch.verbs.standing import State, closing_lines

JOB = make_job(on_this_machine(2, 1))


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    """A run of four tasks, three of which have written lines in the last two hours."""
    folder, now = RunFolder.create(tmp_path, JOB), time.time()
    lines = (
        (7000, "[worker/0 localhost] step 1 of worker"),
        (6500, "[ps/0 localhost] ps serves"),
        (6000, "[master/0 localhost] step 1"),
        (5500, "worker/1 on localhost: lost; restart 1 of 1 in 1 s"),
        (5000, "[master/0 localhost] saved"),
        (30, "[worker/0 localhost] step 2 of worker"),
        (20, "[master/0 localhost] step 2"),
    )
    folder.output_log.write_text("".join(f"{utc(now - ago)} {text}\n" for ago, text in lines))
    return folder


def said(run: RunFolder, capfd: pytest.CaptureFixture[str], *words: str, code: int = 0) -> str:
    """Returns what `logs` prints, on both streams."""
    assert cli.main(["logs", "--state-dir", str(run.path.parent), *words]) == code
    printed = capfd.readouterr()
    return printed.out + printed.err


def test_lines_of_all_tasks_have_their_names(
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


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (["master/0"], ["step 1", "saved", "step 2"]),
        (["worker"], ["step 1 of worker", "step 2 of worker"]),
        (["--tail", "1"], ["ps serves", "step 2 of worker", "step 2"]),
        (["--since", "1h50m"], ["ps serves", "step 1", "saved", "step 2 of worker", "step 2"]),
        (["--grep", "^step 1"], ["step 1 of worker", "step 1"]),
        (["--grep", "step", "--tail", "1"], ["step 2 of worker", "step 2"]),
        (["--since", "1h50m", "--grep", "1", "master/0"], ["step 1"]),
    ],
)
def test_tasks_tail_since_and_grep_choose_lines(
    run: RunFolder, capfd: pytest.CaptureFixture[str], words: "list[str]", shown: "list[str]"
) -> None:
    lines = said(run, capfd, *words).splitlines()
    assert [re.sub(r"^\[\S+ localhost\] ", "", line) for line in lines] == shown


def test_a_task_that_the_run_does_not_have_is_named_with_those_that_it_has(
    run: RunFolder, capfd: pytest.CaptureFixture[str]
) -> None:
    shown = said(run, capfd, "worker/7", code=2)
    assert "has no task worker/7; it has master/0, worker/0, worker/1, ps/0" in shown


def test_a_run_without_lines_says_so(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    folder = RunFolder.create(tmp_path, JOB)
    words = f"error: no task has written anything yet: {folder.output_log}\n"
    assert said(folder, capfd, code=2) == words


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
    assert abs(time.time() - 5400 - flags.moment("1h30m")) < 60
    assert flags.moment("2026-01-31T12:00:00Z") == 1769860800.0
    assert flags.moment("2026-01-31T13:00+01:00") == 1769860800.0


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


def test_lines_say_that_a_start_lasts_until_the_first_step(
    folder: RunFolder, capfd: pytest.CaptureFixture[str]
) -> None:
    view = View(folder, live=False, hides_tasks=True)
    folder.output_log.write_text("[master/0 here] hello\na note\n")
    assert shown(view, capfd) == ["a note"]  # not even its tasks are known
    folder.write_status(rows("starting"))
    (line,) = shown(view, capfd)
    assert re.fullmatch(r"1m0\ds elapsed, no training step yet: 1 starting", line)
    folder.write_status(rows("running", "1/9"))
    assert shown(view, capfd) == []
    folder.write_status(rows("failed"))
    assert shown(view, capfd, final=True) == []


def test_a_job_that_outlives_its_launcher_is_followed_to_its_end(
    folder: RunFolder, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    lines = ["[master/0 node7] early", "followed no more", "[master/0 node7] late"]
    states = [State("running", is_followed=True, writes=True), State("x", writes=True), State("x")]
    folder.output_log.write_text(f"{lines[0]}\n")
    waits: list[float] = []

    def next_state(secs: float) -> None:
        waits.append(secs)
        states.pop(0)
        with folder.output_log.open("a") as file:
            file.write(f"{lines[len(waits)]}\n")
        if len(states) == 1:
            folder.write_end(Outcome(0, "master/0 is done"))
            ended = folder.record()["began"] + 100
            folder.write_status({**folder.status(), "time": ended})

    monkeypatch.setattr(follow, "state_of", lambda _: states[0])
    monkeypatch.setattr(time, "sleep", next_state)
    words = argparse.Namespace(state_dir=str(folder.path.parent), run=None, lines=True)
    assert follow.attach(words) == 0
    assert capfd.readouterr().out.splitlines()[2:] == [*lines, "3 tasks, 1m40s", "master/0 is done"]
    assert waits == [0.2, 5.0]


def test_a_platform_that_does_not_answer_for_a_while_is_asked_again(
    folder: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    unknown = State("unknown", writes=True, is_unknown=True)
    states = [unknown, State("over"), unknown]
    monkeypatch.setattr(follow, "state_of", lambda _: states.pop(0))
    monkeypatch.setattr(time, "sleep", lambda _: None)
    assert [*follow._looks(folder)] == [False, True]
    monkeypatch.setattr(follow, "state_of", lambda _: unknown)
    assert [*follow._looks(folder)] == [False] * 11 + [True]


def test_a_task_without_lines_is_named_with_the_way_out(
    folder: RunFolder, capfd: pytest.CaptureFixture[str]
) -> None:
    folder.output_log.write_text("[master/0 node7] early\n")
    words = ["logs", "--state-dir", str(folder.path.parent)]
    assert cli.main([*words, "worker/0"]) == 2
    output = f"error: no line of worker/0 in {folder.output_log}; to wait for one: logs -f\n"
    assert capfd.readouterr().err == output


def test_a_time_that_utc_does_not_have_is_refused() -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="must be a time ago"):
        flags.moment("9999-12-31T23:00-05:00")


STOOD_STILL = """
import pathlib, sys
from launch.cluster.host_list import on_this_machine
from launch.cluster.tasks import make_job
from launch.record.outcome import Outcome
from launch.record.run_folder import RunFolder
from launch.verbs import up
from launch.verbs.follow import View

folder = RunFolder.create(pathlib.Path(sys.argv[1]), make_job(on_this_machine(1, 1)))

def run(display):
    for _ in range(100):
        display.note("x" * 9999)
    return Outcome(3, "worker/0 failed")

up._run_here(run, folder.output_log, View(folder, live=False))
"""


def test_a_reader_that_stands_still_does_not_hold_up_the_end(tmp_path: Path) -> None:
    words = [sys.executable, "-c", STOOD_STILL, str(tmp_path)]
    with subprocess.Popen(words, stdout=subprocess.PIPE) as process:
        assert process.wait(60) == 3


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
