"""What the launcher displays to the user: lines, the table and the line of the job."""

import io
import os
import re
import threading

import pytest
from rich.console import Console

from launch.screen.display import Display
from launch.screen.plain import plain
from launch.screen.row import Row, duration, job_line, those_that_differ
from launch.screen.table import fitting, render


def test_lines_carry_their_task_and_host() -> None:
    stream = io.StringIO()
    display = Display(stream)
    display.task_line("worker/0", "node1", "step 1")
    display.note("stopping")
    display.close()
    assert stream.getvalue() == "[worker/0 node1] step 1\nstopping\n"


@pytest.mark.parametrize(
    "characters",
    ["\x1b]52;c;AAAA\x07", "\u202eabc\u202c", "\u2028"],
)
def test_neither_lines_nor_the_table_control_the_terminal(characters: str) -> None:
    row = Row("worker/0", "node1", "running", "1/2", "3", f"before{characters}after")
    drawn = io.StringIO()
    Console(file=drawn, width=100).print(render([row], 100))
    for text in (plain(f"before{characters}after\t"), drawn.getvalue()):
        assert all(one.isprintable() or one in "\t\n" for one in text)
        assert "before" in text
        assert "after" in text


def test_a_pipe_that_does_not_block_gets_every_line() -> None:
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    lines = [f"{i} {'x' * 50}" for i in range(5000)]  # more than a pipe holds

    def write() -> None:
        with os.fdopen(writing, "w") as stream:
            display = Display(stream)
            for line in lines:
                display.note(line)

    writer = threading.Thread(target=write)
    writer.start()
    with os.fdopen(reading) as stream:
        assert stream.read().splitlines() == lines
    writer.join(60)


def test_a_reader_that_has_gone_is_no_error() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as stream:
        Display(stream).note("nobody reads this")


MASTERS = (
    "epoch 1.7/4  step 123/282  loss 0.748  accuracy 0.787  lr 0.0605  944 images/s (472 here)  "
    "22s left"
)
WORKERS = MASTERS.replace("944", "767").replace("472", "383").replace("22s", "26s")


def row(task: str, step: str = "", rate: str = "", last: str = "", state: str = "running") -> Row:
    return Row(task, "node0", state, step, rate, last)


def test_the_job_has_one_speed_that_of_its_lead() -> None:
    rows = [
        row("ps/0", last="ps/0 serves at 127.0.0.1:2223"),
        row("worker/0", "124/282", "767", WORKERS),
        row("master/0", "123/282", "944", MASTERS),
    ]
    assert job_line(rows, 60) == "step 123/282   944 images/s   22s left   1m00s elapsed"


def test_without_a_step_of_the_lead_another_trainer_stands_for_the_job() -> None:
    rows = [row("chief/0"), row("worker/0", "124/282", "767", "its 13 images are left")]
    assert job_line(rows, 5) == "step 124/282   767 images/s   5s elapsed"


@pytest.mark.parametrize(
    ("secs", "words"),
    [(252, "4m12s"), (3780, "1h03m"), (187_200, "2d04h")],
)
def test_durations_have_two_units(secs: float, words: str) -> None:
    assert duration(secs) == words


@pytest.mark.parametrize(
    ("last", "words"),
    [
        (MASTERS, "epoch 1.7/4  loss 0.748  accuracy 0.787  lr 0.0605"),
        ("step 3/60  loss 2.1  9.5 img/s", "loss 2.1"),
        ("training to step 282; output: demo/output", "training to step 282; output: demo/output"),
    ],
)
def test_a_row_repeats_neither_step_nor_speed_nor_the_time_left(last: str, words: str) -> None:
    assert row("master/0", "123/282", "944", last).own_words == words


@pytest.mark.parametrize(
    ("width", "line"),
    [
        (
            99,
            "step 123/282   loss 0.748   accuracy 0.787   lr 0.0605   944 images/s   22s left   "
            "1m00s elapsed",
        ),
        (79, "step 123/282   loss 0.748   944 images/s   22s left   1m00s elapsed"),
        (59, "step 123/282   944 images/s   22s left   1m00s elapsed"),
        (49, "step 123/282   944 images/s   22s left"),
    ],
)
def test_the_jobs_line_has_the_leads_figures_as_far_as_there_is_room(width: int, line: str) -> None:
    assert job_line([row("master/0", "123/282", "944", MASTERS)], 60, width) == line


def test_while_a_job_trains_only_tasks_that_differ_have_a_row() -> None:
    master = row("master/0", "1,123/2,820", "944", MASTERS)
    others = {
        "worker/0": row("worker/0", "1,101/2,820"),
        "worker/1": row("worker/1", "801/2,820"),  # a tenth of the steps behind
        "worker/2": row("worker/2", state="running (1 restarts)"),
        "worker/3": row("worker/3", state="failed"),
        "worker/4": row("worker/4", state="done"),
        "ps/0": row("ps/0"),
    }
    shown = [one.task for one in those_that_differ([master, *others.values()])]
    assert shown == ["worker/1", "worker/2", "worker/3"]
    assert those_that_differ([row("master/0"), *others.values()])[1:] == [*others.values()]


def live_lines(*lines: tuple[str, str]) -> list[str]:
    """Returns what stays above a live table of the tasks' lines."""
    stream = io.StringIO()
    display = Display(stream, live=True)
    for task, line in lines:
        display.task_line(task, "node0", line)
    display.close()
    return re.findall(r"\[[a-z]+/\d node0\] [^\n]+", stream.getvalue())


def test_above_the_table_are_only_lines_of_the_lead_without_its_start_and_progress() -> None:
    assert live_lines(
        ("master/0", "training to step 282; output: demo/output"),
        ("worker/0", "ready"),
        ("master/0", MASTERS),
        ("worker/0", WORKERS),
        ("master/0", "validation accuracy 0.3456 at step 123"),
        ("ps/0", "bye"),
    ) == ["[master/0 node0] validation accuracy 0.3456 at step 123"]


@pytest.mark.parametrize("count", [3, 25])
def test_what_a_lead_says_before_a_step_is_shown_if_it_is_much_or_none_follows(count: int) -> None:
    lines = [("chief/0", f"line {i}") for i in range(count)]
    assert live_lines(*lines) == [f"[chief/0 node0] line {i}" for i in range(count)]


TRAINS = "loss 0.748  accuracy 0.787  lr 0.0605  944 images/s (472 here)  1m22s left"
ROWS = (
    Row("master/0", "node0", "running", "123/282", "944", f"epoch 1.7/4  step 123/282  {TRAINS}"),
    Row("worker/0", "node1", "running (1 restarts)", "120/282", "944", f"step 120/282  {TRAINS}"),
    Row("ps/0", "node0", "running", "", "", "ps/0 serves at 127.0.0.1:42685"),
)


def drawn(rows: tuple[Row, ...], width: int) -> list[str]:
    console = Console(width=width, file=io.StringIO(), highlight=False)
    console.print(render(rows, width))
    text = console.file.getvalue()  # type: ignore[attr-defined]
    return [line.rstrip() for line in text.splitlines()]


def test_at_100_columns_all_columns_are_there() -> None:
    assert drawn((ROWS[0], ROWS[2]), 100) == [
        "task      host   state       step  last line",
        "master/0  node0  running  123/282  epoch 1.7/4  loss 0.748  accuracy 0.787  lr 0.0605",
        "ps/0      node0  running           ps/0 serves at 127.0.0.1:42685",
    ]


def test_at_60_columns_the_last_line_has_the_room_of_host_and_step() -> None:
    assert drawn((ROWS[0], ROWS[2]), 60) == [
        "task      state    last line",
        "master/0  running  epoch 1.7/4  loss 0.748  accuracy 0.787",
        "ps/0      running  ps/0 serves at 127.0.0.1:42685",
    ]


@pytest.mark.parametrize("width", [20, 40, 60, 80, 100, 200])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    assert max(map(len, drawn(ROWS, width))) <= width


def test_a_low_screen_shows_what_needs_attention_and_the_lead_first() -> None:
    rows = [
        Row("ps/0", "node0", "running", "", "", ""),
        Row("worker/0", "node0", "running", "", "", ""),
        Row("worker/1", "node0", "done", "", "", ""),
        Row("worker/2", "node0", "failed", "", "", ""),
        Row("master/0", "node0", "running", "", "", ""),
    ]
    shown, others = fitting(rows, 3)
    assert [row.task for row in shown] == ["worker/2", "master/0"]
    assert others == "and 3 more tasks: 2 running, 1 done"
