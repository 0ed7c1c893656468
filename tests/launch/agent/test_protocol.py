"""Messages between launcher and agent."""

import json
import os
from collections.abc import Iterator

import pytest

from launch.agent.protocol import Incoming, Outgoing, encode


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
