"""What the launcher displays to the user."""

import io
import os
import re
import threading
import time

import pytest
from rich.console import Console

from launch.screen.display import Display
from launch.screen.plain import plain
from launch.screen.row import Row
from launch.screen.table import render


def test_lines_carry_their_task_and_host() -> None:
    stream = io.StringIO()
    display = Display(stream)
    display.task_line("worker/0", "node1", "step 1")
    display.note("stopping")
    display.close()
    assert stream.getvalue() == "[worker/0 node1] step 1\nstopping\n"


def test_control_characters_do_not_reach_the_terminal() -> None:
    stream = io.StringIO()
    display = Display(stream)
    display.task_line("worker/0", "node1", "a\x1b[2Jb\rc\td")
    display.close()
    assert stream.getvalue() == "[worker/0 node1] a[2Jbc\td\n"


@pytest.mark.parametrize(
    "characters",
    ["\x1b]52;c;AAAA\x07", "\x9b2J", "\x90q\x9c", "\u202eabc\u202c", "\u2066\u2069", "\u2028"],
)
def test_neither_lines_nor_the_table_control_the_terminal(characters: str) -> None:
    row = Row("worker/0", "node1", "running", "1/2", "3", f"before{characters}after")
    drawn = io.StringIO()
    Console(file=drawn, width=100).print(render([row], 100))
    for text in (plain(f"before{characters}after\t"), drawn.getvalue()):
        assert all(one.isprintable() or one in "\t\n" for one in text)
        assert "before" in text
        assert "after" in text


def test_a_reader_that_stands_still_holds_nobody_up() -> None:
    reading, writing = os.pipe()
    with os.fdopen(writing, "w") as stream:
        display = Display(stream)

        def write() -> None:
            for i in range(30_000):
                display.note(f"{i} {'x' * 50}")

        writer = threading.Thread(target=write, daemon=True)
        writer.start()
        writer.join(60)
        is_held_up = writer.is_alive()
        os.close(reading)
        assert not is_held_up
        display.close()


def test_a_pipe_that_does_not_block_gets_every_line() -> None:
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    lines = [f"{i} {'x' * 50}" for i in range(5000)]  # more than a pipe holds
    found: list[str] = []

    def read() -> None:
        with os.fdopen(reading) as stream:
            found.extend(stream.read().splitlines())

    with os.fdopen(writing, "w") as stream:
        display = Display(stream)
        for line in lines:
            display.note(line)
        time.sleep(0.5)  # the pipe is full
        reader = threading.Thread(target=read)
        reader.start()
        display.close()
        os.close(display._stream._fd)  # type: ignore[attr-defined]
    reader.join(60)
    assert found == lines


def test_a_reader_that_has_gone_is_no_error() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as stream:
        display = Display(stream)
        display.note("nobody hears")
        display.close()


def test_the_table_keeps_to_the_width_and_takes_no_markup() -> None:
    console = Console(width=80, file=io.StringIO(), highlight=False)
    row = Row("worker/0", "node1", "running", "1,024/3,516", "512", "[red] " + "long " * 50)
    console.print(render([row], 80))
    lines = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert [len(line.rstrip()) <= 80 for line in lines] == [True, True]
    assert "1,024/3,516" in lines[1]
    assert "[red]" in lines[1]


def test_a_line_says_once_in_a_while_that_no_step_was_taken_yet() -> None:
    stream = io.StringIO()
    display = Display(stream, began=time.time() - 61)
    rows = [
        Row("master/0", "node0", "starting", "", "", ""),
        Row("worker/0", "node1", "running", "", "", ""),
        Row("ps/0", "node0", "running", "", "", ""),
    ]
    for _ in range(3):
        display.table(rows)
    display.close()
    (line,) = stream.getvalue().splitlines()
    assert re.fullmatch(r"1m0\ds elapsed, no training step yet: 1 starting, 2 running", line)


@pytest.mark.parametrize("mentions_start", [False, True])
def test_after_the_first_step_or_where_another_says_so_no_line_is_about_the_start(
    mentions_start: bool,
) -> None:
    stream = io.StringIO()
    display = Display(stream, mentions_start=mentions_start, began=time.time() - 61)
    step = "1/282" if mentions_start else ""
    display.table([Row("master/0", "node0", "running", step, "", "")])
    display.table([Row("master/0", "node0", "starting", "", "", "")])
    display.close()
    assert stream.getvalue() == ""
