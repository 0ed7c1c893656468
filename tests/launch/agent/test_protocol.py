"""What a host sends: which lines are messages."""

import pytest

from launch.agent.protocol import encode, read_event


@pytest.mark.parametrize("event", ["lost", "connected", "unreachable"])
def test_what_only_the_launcher_says_to_itself_is_no_message_of_a_host(event: str) -> None:
    assert read_event(encode({"event": event, "reason": "", "task": "worker/0"})) is None


def test_a_long_text_is_shortened_and_half_a_character_replaced() -> None:
    line = b'{"event":"note","text":"\\ud800%s","more":[1]}' % (b"x" * 10_000)
    assert read_event(line) == {"event": "note", "text": "?" + "x" * 4095, "more": [1]}
