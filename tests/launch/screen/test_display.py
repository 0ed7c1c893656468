"""What the launcher displays to the user."""

import io
import os
import threading

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
    Console(file=drawn, width=100).print(render([row]))
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


def test_a_reader_that_has_gone_is_no_error() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as stream:
        display = Display(stream)
        display.note("nobody hears")
        display.close()


def test_the_table_keeps_to_the_width_and_takes_no_markup() -> None:
    console = Console(width=70, file=io.StringIO(), highlight=False)
    row = Row("worker/0", "node1", "running", "1,024/3,516", "512", "[red] " + "long " * 50)
    console.print(render([row]))
    lines = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert [len(line.rstrip()) <= 70 for line in lines] == [True, True]
    assert "1,024/3,516" in lines[1]
    assert "[red]" in lines[1]


def test_notes_stand_above_the_table() -> None:
    stream = io.StringIO()
    display = Display(stream, live=True)
    display.table([Row("master/0", "node0", "running", "1/2", "9", "")])
    display.note("worker/0 is done")
    display.close()
    assert "worker/0 is done" in stream.getvalue()
    assert "master/0" in stream.getvalue()
