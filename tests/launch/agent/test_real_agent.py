"""A real agent: what is no order ends it in order, and the ports and old logs of its host."""

import contextlib
import json
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from launch.agent.protocol import MAGIC, encode
from launch.agent.tcp_ports import hold
from launch.connect.link import agent_command, payload
from tests.launch.launcher import assert_nothing_left, wait_for

RUN = "20260101-000000-ab12"
_TASK = """\
import signal, sys, time
def save(*_):
    print("saved", flush=True)
    sys.exit(143)
signal.signal(signal.SIGTERM, save)
print("ready", flush=True)
while True:  # Python heeds a signal that comes right before a sleep only after it.
    time.sleep(0.1)
"""


class Agent:
    """A real agent, started as on any host."""

    def __init__(self, errors: Path) -> None:
        with errors.open("wb") as file:
            self.process = subprocess.Popen(
                agent_command(sys.executable, RUN),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=file,
            )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.stdin, self.stdout = self.process.stdin, self.process.stdout
        self.send(payload())
        assert self.stdout.readline() == MAGIC

    def send(self, data: bytes) -> None:
        self.stdin.write(data)
        self.stdin.flush()

    def next(self, event: str) -> dict[str, Any]:
        """Returns the next message of this kind, and skips others."""
        for line in self.stdout:
            message: dict[str, Any] = json.loads(line)
            if message["event"] == event:
                return message
        raise AssertionError(f"no {event}")

    def set_up(self, num_ports: int = 0) -> None:
        order = {"do": "begin", "mark": "node.1", "lease_secs": 30, "stop_secs": 10, "alone": True}
        self.send(encode({**order, "ports": num_ports, "containers": None}))

    def start(self, code: str = _TASK, port: "int | None" = None) -> None:
        order: dict[str, Any] = {
            "do": "start",
            "task": "master/0",
            "argv": [sys.executable, "-c", code],
        }
        order |= {"script": None, "cwd": "/", "env": {}, "masked": [], "gpus": None, "share": None}
        self.send(encode({**order, "port": port, "last": False}))


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[Agent]:
    agent = Agent(tmp_path / "errors")
    yield agent
    agent.process.kill()
    agent.process.wait()
    with contextlib.suppress(BrokenPipeError):
        agent.stdin.close()
    agent.stdout.close()
    assert_nothing_left(RUN, timeout_secs=20)


@pytest.mark.parametrize(
    "sent", [b'{"do":"start","ta', b"\xff" * (1 << 25)], ids=["cut off", "without end"]
)
def test_what_is_no_order_ends_the_tasks_in_order_and_the_agent(
    agent: Agent, sent: bytes, tmp_path: Path
) -> None:
    agent.set_up()
    agent.start()
    assert agent.next("lines")["lines"] == ["ready"]
    with contextlib.suppress(BrokenPipeError):
        agent.send(sent)
        agent.stdin.close()
    assert agent.next("orphaned")["reason"] == "the launcher has ended"
    assert agent.next("lines")["lines"] == ["saved"]
    assert agent.next("exit")["code"] == 143
    assert agent.process.wait(60) == 0
    assert (tmp_path / "errors").read_text() == ""


def is_held(port: int) -> bool:
    with socket.socket() as other:
        try:
            other.bind(("", port))
        except OSError:
            return True
    return False


def test_the_ports_of_tasks_are_held_and_what_a_program_says_at_length_fits_into_a_message(
    agent: Agent, tmp_path: Path
) -> None:
    agent.set_up(num_ports=4)
    found = agent.next("hello")["ports"]
    assert [is_held(port) for port in found] == [True] * 4
    (chosen,) = hold(1)  # as one of an earlier agent
    port = chosen.getsockname()[1]
    chosen.close()
    for _ in range(2):  # the task is started again, too
        agent.start("", port)
        agent.next("exit")
        assert is_held(port)
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\nhead -c 3000000 /dev/zero | tr '\\0' x >&2\nexit 1\n")
    python.chmod(0o755)
    look = {"do": "look", "cwd": str(tmp_path), "python": str(python), "code": ["main.py"]}
    agent.send(encode({**look, "engine": None, "image": None, "data": None, "ports": []}))
    error = agent.next("looked")["python_error"]
    assert error.startswith(f"{python}: xxx")
    assert len(error) == 4096


def test_ctrl_c_ends_no_agent_and_can_be_taken_by_a_task(agent: Agent, tmp_path: Path) -> None:
    agent.set_up()
    agent.process.send_signal(signal.SIGINT)
    agent.start("import signal; print(signal.getsignal(2) is not signal.SIG_IGN)")
    assert agent.next("lines")["lines"] == ["True"]


def test_lines_for_a_launcher_that_does_not_read_are_left_out_but_no_event(
    agent: Agent, tmp_path: Path
) -> None:
    agent.set_up()
    agent.start(f"for i in range(100_000): print('x' * 400)\nopen({str(tmp_path / 'end')!r}, 'w')")
    wait_for((tmp_path / "end").exists, "the end of the task, which nothing holds up")
    found = [json.loads(agent.stdout.readline())]
    while found[-1]["event"] != "exit":
        found.append(json.loads(agent.stdout.readline()))
    assert found[-1]["code"] == 0
    assert 10_000 < sum(len(one["lines"]) for one in found if one["event"] == "lines") < 60_000
