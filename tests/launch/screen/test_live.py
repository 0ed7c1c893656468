"""What a person sees of a running job on a terminal, drawn by a terminal emulator."""

import os
import re
import sys
from pathlib import Path
from typing import Optional

import pytest

from testbeds.terminal import Terminal
from tests.launch.launcher import LOCAL, ROOT, Launcher, assert_nothing_left

TWO = (*LOCAL, "--workers", "1")
CTRL_C = "\x03"
CTRL_Z = "\x1a"
COLOUR = re.compile(rb"\x1b\[[0-9;]*3[0-7]m")


def job(
    launcher: Launcher, columns: int, *arguments: str, env: Optional[dict[str, str]] = None
) -> Terminal:
    """Starts a job on a terminal; arguments before `--` are for `up`."""
    words = launcher.up_words(TWO, *arguments)
    return Terminal([sys.executable, "-m", "launch", "up", *words], columns, env=env, cwd=ROOT)


def has_table(lines: "tuple[str, ...] | list[str]") -> bool:
    return any(line.startswith("task ") for line in lines)


def test_lines_of_tasks_stay_and_the_table_goes(launcher: Launcher) -> None:
    with job(launcher, 100, "steps=30") as terminal:
        terminal.wait_for_words(" elapsed")
        assert terminal.finish() == 0
        lines = terminal.all_lines
        assert any(has_table(frame) for frame in terminal.frames)
        assert not has_table(lines)
        assert not [line for line in lines if "elapsed" in line]
        for task in ("master/0", "worker/0"):
            assert f"[{task} localhost] epoch 0.1/1  step 1/30  loss 1.9" in lines
        assert lines[-1] == "master/0 is done"
        assert terminal.screen.cursor.x == 0


def test_ctrl_c_ends_with_what_is_saved_and_how_to_continue(launcher: Launcher) -> None:
    columns = 60
    saves = "master/0:saves=output/model.ckpt-7"
    with job(launcher, columns, "steps=1000", saves) as terminal:
        terminal.wait_for(
            lambda: re.search(r"512 images/s +\d+s elapsed", "\n".join(terminal.shown)), "a speed"
        )
        terminal.type(CTRL_C)
        terminal.wait_for_words("[s]top")
        terminal.type("s\r")
        assert terminal.finish() == 130
        text = "".join(line.ljust(columns) for line in terminal.all_lines)
        command = f"to continue: {sys.executable} -m launch up --on local --workers 1 --state-dir"
        assert "saved output/model.ckpt-7 " in text
        assert command in text
        assert " -- steps=1000 master/0:saves=output/model.ckpt-7 " in text
        assert terminal.all_lines[-1] == "exit code 130: stopped by SIGINT"
        assert not has_table(terminal.all_lines)
        assert "Ctrl-C: [l]eave running, [s]top (saves first), [c]ontinue?" in text
        assert "^C" not in text
    assert_nothing_left(launcher.run_id())


SCRIPT = """
import sys
from launch.screen.display import Display
from launch.screen.row import Row

display = Display()
{body}
display.close()
"""


LINE_AND_TABLE = """
display.task_line("master/0", "node0", "epoch 0.1/1  step 1/30  loss 1.9  512 images/s")
display.table([Row("master/0", "node0", "running", "1/30", "512", "loss 1.9")])
input()
"""


def shown_by(
    body: str, columns: int, lines: int = 24, env: Optional[dict[str, str]] = None
) -> Terminal:
    """Starts a program that uses a display as `body` says; `input()` waits for a key of a test."""
    command = [sys.executable, "-c", SCRIPT.format(body=body)]
    variables = {"PYTHONPATH": str(ROOT), **(env or {})}
    return Terminal(command, columns, lines, cwd=ROOT, env=variables)


@pytest.mark.parametrize(("env", "is_coloured"), [({}, True), ({"NO_COLOR": "1"}, False)])
def test_no_color_leaves_the_table_without_colours(env: dict[str, str], is_coloured: bool) -> None:
    with shown_by(LINE_AND_TABLE, 60, env=env) as terminal:
        terminal.wait_for_words("step 1/30   512 images/s   ")
        assert has_table(terminal.shown)
        assert bool(COLOUR.search(terminal.raw)) == is_coloured
        terminal.type("\r")
        assert terminal.finish() == 0


def test_a_dumb_terminal_gets_lines_alone() -> None:
    with shown_by(LINE_AND_TABLE, 60, env={"TERM": "dumb"}) as terminal:
        terminal.wait_for_words("step 1/30")
        terminal.type("\r")
        assert terminal.finish() == 0
        assert terminal.raw.count(b"\x1b") == 0
        text = "".join(terminal.all_lines)
        assert text == "[master/0 node0] epoch 0.1/1  step 1/30  loss 1.9  512 images/s"


def test_the_time_runs_while_nothing_else_is_known() -> None:
    def secs() -> int:
        found = [re.fullmatch(r"starting   (\d+)s elapsed", line) for line in terminal.shown]
        return int(found[-1][1]) if found and found[-1] else -1

    with shown_by("input()", 60) as terminal:
        terminal.wait_for(lambda: secs() >= 1, "the second second")
        assert terminal.shown[0] == ""
        assert len(terminal.shown) == 2
        terminal.type("\r")
        assert terminal.finish() == 0
        assert terminal.all_lines == []


def test_keys_leave_no_line_of_the_table_behind() -> None:
    body = """
for i in range(3):
    display.table([Row("master/0", "node0", "running", "1/30", "512", "loss 1.9")])
    input()
    display.note(f"line {i}")
"""
    with shown_by(body, 60) as terminal:
        for i in range(3):
            terminal.wait_for(lambda: has_table(terminal.shown), "the table")
            terminal.type("hello\r")
            terminal.wait_for_words(f"line {i}")
        assert terminal.finish() == 0
        assert max(sum(has_table([line]) for line in frame) for frame in terminal.frames) == 1
        assert terminal.all_lines == ["line 0", "line 1", "line 2"]


def test_more_tasks_than_lines_leave_room_for_the_job() -> None:
    body = """
rows = [Row(f"worker/{i}", "node0", "running", "", "", "") for i in range(40)]
display.table([*rows, Row("master/0", "node0", "running", "1/2", "9", "loss 2")])
input()
display.note("over")
"""
    with shown_by(body, 60, lines=12) as terminal:
        terminal.wait_for_words("step 1/2   9 images/s")
        assert terminal.shown[0] == ""
        assert [line.split()[0] for line in terminal.shown[1:]] == [
            "task",
            *(f"worker/{i}" for i in range(5)),
            "master/0",
            "and",
            "step",
        ]
        assert terminal.shown[-2] == "and 35 more tasks: 35 running"
        terminal.type("\r")
        assert terminal.finish() == 0
        assert terminal.all_lines == ["over"]


def test_a_table_that_shrinks_or_a_terminal_that_grows_leaves_nothing() -> None:
    body = """
rows = [Row(f"worker/{i}", "node0", "running", "", "", "x" * 90) for i in range(5)]
display.table(rows)
input()
display.table(rows[:2])
display.note("two are left")
input()
"""
    with shown_by(body, 60) as terminal:
        terminal.wait_for_words("worker/4")
        terminal.resize(100)
        terminal.type("\r")
        terminal.wait_for(lambda: "two are left" in terminal.shown, "the note")
        terminal.wait_for(lambda: len(terminal.shown) == 6, "the smaller table")
        terminal.type("\r")
        assert terminal.finish() == 0
        assert terminal.all_lines == ["two are left"]


def test_a_long_line_breaks_between_words_and_a_path_is_whole() -> None:
    path = "/folder" * 10
    body = f"""
display.note("[master/0 node0] epoch 2.3/4  step 164/282  loss 0.546  accuracy 0.841")
display.note("report: {path}/report.html")
"""
    with shown_by(body, 60) as terminal:
        assert terminal.finish() == 0
        assert terminal.all_lines == [
            "[master/0 node0] epoch 2.3/4  step 164/282  loss 0.546",
            "accuracy 0.841",
            "report:",
            path[:60],
            f"{path[60:]}/report.html",
        ]


def test_a_job_that_goes_to_the_background_ends_there(tmp_path: Path) -> None:
    body = """
import os, time
display.table([Row("master/0", "node0", "running", "1/30", "512", "loss 1.9")])
while not os.path.exists("go"):
    time.sleep(0.05)
"""
    (tmp_path / "show.py").write_text(SCRIPT.format(body=body))
    script = f"set -m; {sys.executable} show.py; bg; touch go; wait %1; echo code $? > code"
    env = {"PYTHONPATH": str(ROOT), "PATH": os.environ["PATH"]}
    with Terminal(["bash", "-c", script], 60, cwd=tmp_path, env=env) as terminal:
        terminal.wait_for(lambda: has_table(terminal.shown), "the table")
        terminal.type(CTRL_Z)
        assert terminal.finish(30) == 0
        assert (tmp_path / "code").read_text() == "code 0\n"


def test_a_terminal_that_goes_while_the_table_is_shown_is_no_error(tmp_path: Path) -> None:
    body = """
import signal, time
signal.signal(signal.SIGHUP, signal.SIG_IGN)
while display._thread.is_alive():
    display.note("news")
    time.sleep(0.05)
"""
    script = f"{sys.executable} show.py 2> errors; echo code $? > code"
    (tmp_path / "show.py").write_text(SCRIPT.format(body=body))
    env = {"PYTHONPATH": str(ROOT)}
    shell = ["bash", "-c", f"trap '' HUP; {script}"]
    terminal = Terminal(shell, 60, cwd=tmp_path, env=env)
    try:
        terminal.wait_for_words("news")
        terminal.hang_up()
        assert terminal.process.wait(60) == 0
        assert (tmp_path / "code").read_text() == "code 0\n"
        assert (tmp_path / "errors").read_text() == ""
    finally:
        terminal.close()


def test_a_job_in_the_background_is_not_stopped_by_its_terminal(tmp_path: Path) -> None:
    code = SCRIPT.format(body="display.note('all is well')")
    (tmp_path / "show.py").write_text(code)
    script = f"set -m; {sys.executable} show.py & wait $!; echo code $? > code"
    env = {"PYTHONPATH": str(ROOT), "PATH": os.environ["PATH"]}
    with Terminal(["bash", "-c", script], 60, cwd=tmp_path, env=env) as terminal:
        assert terminal.finish(30) == 0
        assert terminal.all_lines[0] == "all is well"
        assert (tmp_path / "code").read_text() == "code 0\n"
