"""The table at the widths of a small and of a usual terminal."""

import io

import pytest
from rich.console import Console

from launch.screen.row import Row
from launch.screen.table import fitting, render

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
        "task      host   state    step     last line",
        "master/0  node0  running  123/282  epoch 1.7/4  loss 0.748  accuracy 0.787  lr 0.0605",
        "ps/0      node0  running           ps/0 serves at 127.0.0.1:42685",
    ]


def test_at_60_columns_the_last_one_has_40_of_them() -> None:
    assert drawn((ROWS[0], ROWS[2]), 60) == [
        "task      state    last line",
        "master/0  running  epoch 1.7/4  loss 0.748  accuracy 0.787 …",
        "ps/0      running  ps/0 serves at 127.0.0.1:42685",
    ]


def test_the_host_is_left_out_before_the_step() -> None:
    headers = [" ".join(drawn(ROWS, width)[0].split()) for width in (110, 82, 75)]
    assert headers == [
        "task host state step last line",
        "task state step last line",
        "task state last line",
    ]


def test_a_column_stays_where_last_lines_are_short() -> None:
    rows = (Row("master/0", "node0", "starting", "", "", ""),)
    assert drawn(rows, 60) == [
        "task      host   state     step  last line",
        "master/0  node0  starting",
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


def test_a_high_screen_shows_all() -> None:
    assert fitting(ROWS, 3) == (list(ROWS), "")
