"""What the launcher displays to the user: lines, the table and the line of the job."""

import io
import os
import re
from typing import Optional

import pytest
from rich.console import Console

from launch.screen import table
from launch.screen.display import Display
from launch.screen.row import (
    Row,
    job_line,
    plain,
    read_saved,
    read_step,
    those_that_differ,
)
from launch.screen.table import print_tasks


def drawn(rows: list[Row], width: int) -> list[str]:
    """Returns the lines of a table on a terminal of this width."""
    with pytest.MonkeyPatch.context() as patch:
        stream = io.StringIO()
        patch.setattr(
            table,
            "Console",
            lambda **_: Console(file=stream, width=width, force_terminal=True, no_color=True),
        )
        print_tasks(rows)
    return [line.rstrip() for line in re.sub(r"\x1b\[[0-9;]*m", "", stream.getvalue()).splitlines()]


@pytest.mark.parametrize("characters", ["\x1b]52;c;AAAA\x07", "\u202eabc\u202c", "\u2028"])
def test_neither_lines_nor_the_table_control_the_terminal(characters: str) -> None:
    row = Row("worker/0", "node1", "running", "1/2", f"before{characters}after")
    for text in (plain(f"before{characters}after\t"), "\n".join(drawn([row], 100))):
        assert all(character.isprintable() or character in "\t\n" for character in text)
        assert "before" in text
        assert "after" in text


def test_a_reader_that_has_gone_is_no_error() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    stream = os.fdopen(writing, "w")
    Display(stream).note("nobody reads this")
    with pytest.raises(BrokenPipeError):
        stream.close()


PROGRESS = "epoch 1.7/4  step 123/282  loss 0.748  accuracy 0.787  944 images/s  22s left"


def row(task: str, step: str = "", last: str = "", state: str = "running") -> Row:
    return Row(task, "node0", state, step, last, last if read_step(last) else "")


@pytest.mark.parametrize(
    ("rows", "width", "line"),
    [
        ([row("ps/0", last="ps/0 serves at 127.0.0.1:2223")], 60, "starting"),
        (
            [row("worker/0", "1/2", "step 1/2"), row("master/0", "123/282", PROGRESS)],
            100,
            "━━━━──────  epoch 1.7/4  loss 0.748  accuracy 0.787  22s left  944 images/s",
        ),
        # A validation is at a later step than the last report of progress, whose shape stays.
        (
            [Row("master/0", "node0", "running", "282/282", "validation ...", PROGRESS)],
            60,
            "━━━━━━━━━━  epoch 1.7/4  loss 0.748  22s left",
        ),
        ([row("chief/0"), row("worker/0", "124/282", "x"), row("worker/1", "1")], 60,
         "━━━━──────  step 124/282"),
        ([row("master/0", "12", "step 12  loss 2.3  1,024.5 images/s")], 60,
         "loss 2.3  1,024.5 images/s  step 12"),
    ],
)  # fmt: skip
def test_the_job_has_one_line_that_of_its_lead(rows: list[Row], width: int, line: str) -> None:
    found = job_line(rows, 60, width)
    assert found == f"{line}  1m00s elapsed"
    assert len(found) <= width


def test_while_a_job_trains_only_tasks_that_differ_have_a_row() -> None:
    master = row("master/0", "1,123/2,820", PROGRESS)
    others = [
        row("worker/0", "1,101/2,820"),
        row("worker/1", "840/2,820"),  # a tenth of the run behind
        row("worker/2", state="running (1 restarts)"),
        row("worker/3", state="failed"),
        row("worker/4", state="done"),
        row("ps/0"),
    ]
    shown = [row.task for row in those_that_differ([master, *others])]
    assert shown == ["worker/1", "worker/2", "worker/3"]
    assert those_that_differ([row("master/0"), *others])[1:] == others


def test_above_the_table_are_only_lines_of_the_lead_that_are_not_told_below(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    data = "data: cifar-10, 45,000 train, 5,000 validation, 10,000 eval"
    stream = io.StringIO()
    display = Display(stream, live=True)
    for task, line in (
        ("worker/0", "ready"),
        ("master/0", PROGRESS),
        ("worker/0", PROGRESS),
        ("master/0", data),
        ("master/0", "saved output/model.ckpt-123"),
        ("ps/0", "bye"),
        ("worker/0", "error: no records in /nope"),
    ):
        display.task_line(task, "node0", line)
    display.close()
    text = stream.getvalue()
    assert re.findall(r"\[[a-z]+/\d node0\]", text) == ["[master/0 node0]", "[worker/0 node0]"]
    first, second = text[text.index("[master/0") :].splitlines()[:2]  # No number is broken.
    assert (f"{first} {second}", len(first) <= 60) == (f"[master/0 node0] {data}", True)


@pytest.mark.parametrize("width", [40, 60, 80, 100])
def test_the_last_line_of_a_task_gives_way_on_a_narrow_terminal(width: int) -> None:
    rows = [row("master/0", "123/282", PROGRESS), row("ps/0", last="ps/0 serves")]
    lines = drawn(rows, width)
    assert max(map(len, lines)) <= width
    head = "task      host   state    step     last line"
    assert lines[0].startswith(head[: min(width, 34)])
    assert lines[1].startswith("master/0  node0  running  123/282 ")
    assert lines[1].endswith("…")
    assert len(lines) == 3


def test_a_terminal_of_no_width_gets_every_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "0")
    stream = io.StringIO()
    live = table.LiveTable(stream, 0.0)
    for line in ("first", "", "last"):
        live.line(line)
    live.close()
    assert re.findall(r"\w+|\n", stream.getvalue()) == ["first", "\n", "\n", "last", "\n"]


@pytest.mark.parametrize(
    ("line", "step"),
    [
        ("epoch 2.9/4  step 207/282  loss 0.328  accuracy 0.922  553 images/s  17s", "207/282"),
        ("step 12  loss 2.3  1,024.5 images/s", "12"),
        ("epoch 1.7/4  step 1,205/2,820  loss 0.7", "1,205/2,820"),
        # One of several asynchronous trainers has taken a step after the last one.
        ("epoch 1.0/1  step 61/60  loss 1.018", "61/61"),
        ("training to step 3,516; output: output", ""),
        ("validation accuracy 0.3456 at step 352 (best so far)", ""),
        ("stepping 3/4", ""),
    ],
)
def test_a_progress_line_is_read_and_another_is_not(line: str, step: str) -> None:
    assert read_step(line) == step


@pytest.mark.parametrize(
    ("line", "saved"),
    [
        ("saved demo/output/model.ckpt-31", "demo/output/model.ckpt-31"),
        ("saved: gs://bucket/my run/model.ckpt-31 ", "gs://bucket/my run/model.ckpt-31"),
        ("saved", None),
        ("it saved demo/output/model.ckpt-31", None),
    ],
)
def test_a_line_names_what_was_saved(line: str, saved: Optional[str]) -> None:
    assert read_saved(line) == saved


@pytest.mark.parametrize(
    ("variables", "is_live"),
    [({"TERM": "xterm"}, True), ({"TERM": "dumb"}, False), ({"TERM": "xterm", "CI": "1"}, False)],
)
def test_a_dumb_terminal_and_ci_get_lines_alone(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], is_live: bool
) -> None:
    class OfTerminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    for name in ("TERM", "CI"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    stream = OfTerminal()
    display = Display(stream)
    display.task_line("worker/0", "node0", PROGRESS)
    display.close()
    assert ("\x1b" in stream.getvalue()) == is_live
    assert (stream.getvalue() == f"[worker/0 node0] {PROGRESS}\n") != is_live
