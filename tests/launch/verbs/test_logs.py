"""What logs, attach and up show of a run, and the last lines of up."""

import argparse
import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from launch.cluster.host_list import on_this_machine
from launch.cluster.tasks import make_job
from launch.record.output import utc
from launch.record.result import ExitReason, Result
from launch.record.run_folder import RunFolder
from launch.verbs import cli, runs
from launch.verbs.runs import RUNNING, State
from launch.verbs.up import View, closing_lines

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


WORKER, MASTER = "[worker/0 localhost] ", "[master/0 localhost] "


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        ([], [f"{WORKER}step 1 of worker", "[ps/0 localhost] ps serves", f"{MASTER}step 1",
              f"{MASTER}saved", f"{WORKER}step 2 of worker", f"{MASTER}step 2"]),
        (["master/0"], ["step 1", "saved", "step 2"]),
        (["worker"], [f"{WORKER}step 1 of worker", f"{WORKER}step 2 of worker"]),
        (["--tail", "2"], [f"{WORKER}step 2 of worker", f"{MASTER}step 2"]),
        (["--tail", "2", "master/0"], ["saved", "step 2"]),
    ],
)  # fmt: skip
def test_tasks_and_tail_choose_lines_which_have_the_names_of_several_tasks(
    run: RunFolder, capfd: pytest.CaptureFixture[str], words: "list[str]", shown: "list[str]"
) -> None:
    assert said(run, capfd, *words).splitlines() == shown


def test_a_task_that_the_run_does_not_have_is_named_with_those_that_it_has(
    run: RunFolder, capfd: pytest.CaptureFixture[str]
) -> None:
    shown = said(run, capfd, "worker/7", code=2)
    assert "has no task worker/7; it has master/0, worker/0, worker/1, ps/0" in shown


def test_a_pipe_that_does_not_block_gets_every_line(
    run: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    run.output_log.write_text("".join(f"[ps/0 localhost] {i:099}\n" for i in range(3000)))

    def read() -> list[str]:
        time.sleep(0.2)
        with os.fdopen(reading) as reader:
            return reader.readlines()

    with ThreadPoolExecutor() as pool:
        with os.fdopen(writing, "w") as stream:
            monkeypatch.setattr(sys, "stdout", stream)
            lines = pool.submit(read)
            assert cli.main(["logs", "--state-dir", str(run.path.parent), "ps/0"]) == 0
        assert lines.result() == [f"{i:099}\n" for i in range(3000)]


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    """The folder of a run that began a minute ago."""
    folder = RunFolder.create(tmp_path, make_job(on_this_machine(1, 1)))
    folder.add(began=time.time() - 62)
    return folder


def test_a_job_that_outlives_its_launcher_is_followed_to_its_end(
    folder: RunFolder, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    lines = ["[master/0 node7] early", "followed no more", "[master/0 node7] late"]
    states = [State(RUNNING, "", writes=True), State("x", "", writes=True), State("x", "")]
    folder.output_log.write_text(f"{lines[0]}\n")
    waits: list[float] = []

    def next_state(secs: float) -> None:
        waits.append(secs)
        states.pop(0)
        with folder.output_log.open("a") as file:
            file.write(f"{lines[len(waits)]}\n")
        if len(states) == 1:
            folder.add(began=time.time() - 100)
            folder.write_end(Result(0, "master/0 is done"))

    monkeypatch.setattr(runs, "state_of", lambda _: states[0])
    monkeypatch.setattr(time, "sleep", next_state)
    words = argparse.Namespace(state_dir=str(folder.path.parent), run=None)
    assert runs.attach(words) == 0
    assert capfd.readouterr().out.splitlines()[2:] == [*lines, "3 tasks, 1m40s", "master/0 is done"]
    assert waits == [0.2, 5.0]


def test_a_mistake_that_all_tasks_tell_is_shown_once(
    folder: RunFolder, capfd: pytest.CaptureFixture[str]
) -> None:
    error = "error: no records in /nope"
    of_ps = "stopped by signal 15; run the same command to continue"
    lines = {"master/0": error, "worker/0": error, "ps/0": of_ps}
    folder.output_log.write_text("".join(f"[{task} n] {line}\n" for task, line in lines.items()))
    view = View(folder)
    view.show_new(final=True)
    view.close()
    assert capfd.readouterr().out == f"[master/0 n] {error}\n"
    result = Result(2, "master/0 failed", details=(f"  | {error}", "  log: x"))
    assert closing_lines(folder, result, view.errors) == [
        "  log: x",
        "exit code 2: master/0 failed",
    ]


def test_a_stopped_job_ends_with_what_it_saved_and_why(folder: RunFolder) -> None:
    saved = ("saved output/model.ckpt-31",)
    result = Result(130, "stopped by SIGINT", details=saved, cause=ExitReason.USER)
    assert closing_lines(folder, result) == [*saved, "exit code 130: stopped by SIGINT"]
