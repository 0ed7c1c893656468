"""What an agent does without its launcher: when, to whom, and in which order."""

import signal
from typing import Any
from unittest.mock import Mock

from launch.agent.main import Agent


class Task(Mock):
    """A task that takes signals, and ends when a test says so."""

    def __init__(self, name: str) -> None:
        super().__init__(last=name.startswith("ps"), signals=[], port=None)
        self.name = name
        self.poll.return_value = None

    def _get_child_mock(self, **more: Any) -> Mock:
        return Mock(**more)

    def got(self) -> list[int]:
        return [call.args[0] for call in self.send.call_args_list]


def test_a_silent_launcher_is_lost_after_the_lease_and_the_ps_end_last() -> None:
    machine, now = Mock(), [100.0]
    machine.now = lambda: now[0]
    agent = Agent("run", machine)
    begin = {"lease_secs": 6.0, "stop_secs": 8.0, "alone": True, "label": "m", "containers": None}
    agent.hear({"do": "begin", "ports": 0, **begin})
    master, ps = Task("master/0"), Task("ps/0")
    agent._running = {"ps/0": ps, "master/0": master}
    now[0] = 106.0
    assert agent.turn()
    assert (master.got(), ps.got()) == ([], [])
    now[0] = 106.1
    assert agent.turn()
    assert (master.got(), ps.got()) == ([signal.SIGTERM], [])
    now[0] = 114.0  # it may save for stop_secs
    assert agent.turn()
    assert ps.got() == []
    master.poll.return_value = 143
    assert agent.turn()
    assert agent.turn()
    assert ps.got() == [signal.SIGTERM]
    now[0] = 117.0
    agent.turn()
    assert ps.got() == [signal.SIGTERM, signal.SIGKILL]
