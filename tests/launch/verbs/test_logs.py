"""`logs`: which lines of which tasks, in which order."""

import re
import time
from pathlib import Path

import pytest

from launch.agent.log_file import LogFile
from launch.cluster.host_list import on_this_machine
from launch.cluster.tasks import make_job
from launch.record.run_folder import RunFolder
from launch.verbs import cli, moments
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


def test_a_view_of_the_tasks_logs_has_the_last_lines_of_all_tasks_in_order(
    run: RunFolder, capfd: pytest.CaptureFixture[str]
) -> None:
    view = View(run, live=False, tail=3, of_tasks=True)
    view.show_new(final=True)
    view.end()
    assert capfd.readouterr().out == (
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
        (["--tail", "0"], []),
        (["--since", "10m"], ["step 2 of worker", "step 2"]),
        (["--since", "1h50m"], ["ps serves", "step 1", "saved", "step 2 of worker", "step 2"]),
        (["--grep", "^step 1"], ["step 1 of worker", "step 1"]),
        (["--grep", "step", "--tail", "1"], ["step 2 of worker", "step 2"]),
        (["--grep", "nothing like this"], []),
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


def test_a_last_line_without_its_end_is_not_mixed_with_the_next(
    run: RunFolder, capfd: pytest.CaptureFixture[str]
) -> None:
    with run.log_path("worker/0").open("a") as file:
        file.write("half")
    assert "[worker/0 localhost] half\n" in said(run, capfd)
    assert said(run, capfd, "worker/0").endswith("\nhalf")


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
        (["--since", "soon"], "got 'soon'"),
        (["--grep", "("], "argument --grep: must be a regular expression, got '('"),
        (["--tail", "-1"], "argument --tail: "),
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
        (-3, "0 s"), (59.9, "59 s"), (60, "1 min"), (3599, "59 min"), (3660, "1 h 01 min"),
        (86399, "23 h 59 min"), (90000, "1 d 1 h"),
    ],
)  # fmt: skip
def test_an_age_has_two_units(secs: float, words: str) -> None:
    assert moments.age(secs) == words
