"""Functions in child processes of an agent."""

import os
import signal
import time
from collections.abc import Callable
from typing import Any

import pytest

from launch.agent.aside import Asides
from launch.agent.machine import Machine


def _answer(work: Callable[[], Any], secs: float = 60) -> Any:
    """Runs a function aside, and returns what is known of it in the end."""
    machine = Machine()
    asides = Asides(machine)
    found: list[Any] = []
    asides.run(work, found.append, secs)
    (child,) = asides._running.values()
    while not found:
        machine.wait(0.05)
        asides.turn()
    os.waitpid(child.pid, 0)
    assert not asides._running
    return found[0]


def test_what_the_function_returns_arrives() -> None:
    assert _answer(lambda: {"words": "x" * 300_000}) == {"words": "x" * 300_000}


@pytest.mark.parametrize(
    "work", [lambda: os.kill(os.getpid(), signal.SIGKILL), lambda: 1 / 0, object]
)
def test_a_function_that_fails_has_no_answer(work: Callable[[], Any]) -> None:
    assert _answer(work) is None


def test_a_function_that_is_late_is_killed() -> None:
    assert _answer(lambda: time.sleep(300), secs=0.1) is None


def test_a_function_is_out_of_the_reach_of_signals_to_the_agent() -> None:
    def work() -> list[int]:
        os.kill(os.getpid(), signal.SIGTERM)
        return [os.getsid(0), os.getpid()]

    session, pid = _answer(work)
    assert session == pid != os.getsid(0)


def test_the_end_takes_no_answer() -> None:
    machine = Machine()
    asides = Asides(machine)
    found: list[Any] = []
    asides.run(lambda: time.sleep(300), found.append, 60)
    (child,) = asides._running.values()
    asides.end()
    assert os.waitpid(child.pid, 0)[1] == signal.SIGKILL
    machine.wait(0)
    assert found == []
