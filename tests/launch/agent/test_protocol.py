"""Messages between launcher and agent: how they travel, and which lines are none."""

import json
import os
from collections.abc import Iterator
from typing import Any

import pytest

from launch.agent.protocol import Incoming, Outgoing, encode, read_event, read_order

EXIT = {
    "event": "exit",
    "task": "worker/0",
    "code": 1,
    "reason": "",
    "stragglers": 0,
    "signals": [15],
    "port_taken": False,
}
START = {
    "do": "start",
    "task": "worker/0",
    "argv": ["python3"],
    "script": None,
    "cwd": "/",
    "env": {"A": "b"},
    "masked": [],
    "gpus": None,
    "share": [0, 2],
    "port": 2222,
    "log": "log",
    "last": False,
}


@pytest.mark.parametrize(
    ("name", "value", "fits"),
    [
        ("task", "x", True),
        ("task", [], False),
        ("code", -1, True),
        ("code", 256, False),
        ("code", True, False),
        ("stragglers", -1, False),
        ("stragglers", 1e300, False),
        ("signals", [], True),
        ("signals", [[1]], False),
        ("port_taken", 1, False),
    ],
)
def test_a_field_of_another_type_or_range_is_no_message(name: str, value: Any, fits: bool) -> None:
    found = read_event(encode({**EXIT, name: value}))
    assert found == ({**EXIT, name: value} if fits else None)


def test_a_line_without_one_of_the_fields_is_no_message() -> None:
    assert read_order(encode(START)) == START
    for name in START.keys() - {"do"}:
        assert read_order(encode({n: value for n, value in START.items() if n != name})) is None


@pytest.mark.parametrize("event", ["lost", "connected", "unreachable"])
def test_what_only_the_launcher_says_to_itself_is_no_message_of_a_host(event: str) -> None:
    assert read_event(encode({"event": event, "reason": "", "task": "worker/0"})) is None


@pytest.mark.parametrize("what", ["NaN", "Infinity", "1e999"])
def test_a_time_that_is_no_number_is_no_order(what: str) -> None:
    line = b'{"do":"sweep","run":"r","engine":null,"patience_secs":%s}'
    assert read_order(line % b"5") is not None
    assert read_order(line % what.encode()) is None


def test_a_long_text_is_shortened_and_half_a_character_replaced() -> None:
    line = b'{"event":"note","text":"\\ud800%s","more":[1]}' % (b"x" * 10_000)
    assert read_event(line) == {"event": "note", "text": "?" + "x" * 4095}


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    yield reading, writing
    for fd in (reading, writing):
        try:
            os.close(fd)
        except OSError:
            continue


def test_a_message_in_pieces_is_put_together(pipe: tuple[int, int]) -> None:
    incoming = Incoming(pipe[0])
    data = encode({"event": "a", "text": "ü\n"}) + encode({"event": "b"})
    os.write(pipe[1], data[:7])
    assert incoming.read() == []
    os.write(pipe[1], data[7:])
    assert [json.loads(line) for line in incoming.read()] == [
        {"event": "a", "text": "ü\n"},
        {"event": "b"},
    ]
    assert incoming.read() == []


def test_the_end_of_the_other_side_is_told(pipe: tuple[int, int]) -> None:
    os.close(pipe[1])
    with pytest.raises(EOFError):
        Incoming(pipe[0]).read()


def test_lines_for_a_slow_reader_are_dropped_but_events_are_not(pipe: tuple[int, int]) -> None:
    outgoing = Outgoing(pipe[1])
    line = {"event": "lines", "lines": ["x" * 100_000]}
    taken = [outgoing.put(line, droppable=True) for _ in range(30)]
    assert taken[0]
    assert not taken[-1]
    assert sum(taken) < 15
    assert outgoing.put({"event": "exit"})
    incoming = Incoming(pipe[0])
    events: list[str] = []
    while outgoing.waiting or not events or events[-1] != "exit":
        events += [json.loads(line)["event"] for line in incoming.read()]
        outgoing.flush()
    assert events == ["lines"] * sum(taken) + ["exit"]


def test_a_reader_that_has_gone_is_no_error(pipe: tuple[int, int]) -> None:
    outgoing = Outgoing(pipe[1])
    os.close(pipe[0])
    outgoing.put({"event": "a"})
    assert not outgoing.waiting
    assert not outgoing.put({"event": "b"})
