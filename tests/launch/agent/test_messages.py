"""Which lines are messages, whatever JSON they hold."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from launch.agent.messages import EVENTS, ORDERS, read_event, read_order
from launch.agent.protocol import encode

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

JSON: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters(categories=None), max_size=8)
    | st.sampled_from(["worker/0", "hello", "lost"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(max_size=4) | st.just("task"), inner, max_size=3)
    ),
    max_leaves=8,
)
NAMES = sorted({name for table in (EVENTS, ORDERS) for fields in table.values() for name in fields})


def objects(key: str, values: "list[str]") -> "st.SearchStrategy[dict[str, Any]]":
    """Objects that look like messages."""
    fields = st.dictionaries(st.sampled_from(NAMES), JSON)
    return st.builds(lambda what, found: {**found, key: what}, st.sampled_from(values), fields)


@settings(max_examples=30, deadline=None)
@given(JSON | objects("event", [*EVENTS, "lost", "?"]) | objects("do", [*ORDERS, "?"]))
def test_whatever_json_comes_a_message_has_its_fields_and_no_others(sent: Any) -> None:
    line = json.dumps(sent).encode()
    event, order = read_event(line), read_order(line)
    if event is not None:
        assert event.keys() == {"event", *EVENTS[event["event"]]}
        json.dumps(event, ensure_ascii=False).encode()  # no half of a character is left
    if order is not None:
        assert order.keys() == {"do", *ORDERS[order["do"]]}


@settings(max_examples=30, deadline=None)
@given(st.binary(max_size=60))
def test_whatever_bytes_come_nothing_is_raised(line: bytes) -> None:
    assert read_event(line) is None
    assert read_order(line) is None


@pytest.mark.parametrize("name", sorted(EXIT.keys() - {"event"}))
@pytest.mark.parametrize("value", [True, 1e300, -1, "x" * 3, [], {}, [[1]], 10**30])
def test_a_field_of_another_type_or_range_is_no_message(name: str, value: Any) -> None:
    fits = {
        "task": isinstance(value, str),
        "reason": isinstance(value, str),
        "code": value == -1,
        "stragglers": False,
        "signals": value == [],
        "port_taken": value is True,
    }
    found = read_event(encode({**EXIT, name: value}))
    assert found == ({**EXIT, name: value} if fits[name] else None)


@pytest.mark.parametrize("name", sorted(EXIT.keys() - {"event"}))
def test_a_missing_field_is_no_message(name: str) -> None:
    assert read_event(encode({n: value for n, value in EXIT.items() if n != name})) is None


@pytest.mark.parametrize("name", sorted(START.keys() - {"do"}))
def test_an_order_without_a_field_is_no_order(name: str) -> None:
    assert read_order(encode(START)) == START
    assert read_order(encode({n: value for n, value in START.items() if n != name})) is None


@pytest.mark.parametrize("event", ["lost", "connected", "unreachable", "", "do"])
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
