"""An agent whose launcher sends what is no order."""

import contextlib
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from launch.agent.free_ports import hold
from launch.agent.protocol import MAGIC, encode
from launch.connect import bootstrap
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
                bootstrap.command(sys.executable, RUN),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=file,
            )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.stdin, self.stdout = self.process.stdin, self.process.stdout
        self.send(bootstrap.payload())
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

    def set_up(self, logs: "str | None" = None, *, successor: bool = False) -> None:
        setup = {"do": "setup", "mark": "node.1", "lease_secs": 30, "stop_secs": 10, "alone": True}
        self.send(encode({**setup, "successor": successor, "containers": None, "logs": logs}))

    def start(self, log: Path, code: str = _TASK, port: "int | None" = None) -> None:
        order: dict[str, Any] = {
            "do": "start",
            "task": "master/0",
            "argv": [sys.executable, "-c", code],
        }
        order |= {"script": None, "cwd": "/", "env": {}, "masked": [], "gpus": None, "share": None}
        self.send(encode({**order, "port": port, "log": str(log), "last": False}))


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
    "sent",
    [
        b"no JSON\n",
        b'{"do":"start","task":"worker/0"}\n',
        b'{"do":' * 100_000 + b"\n",
        b"\xff" * (1 << 25),
    ],
    ids=lambda sent: sent[:20],
)
def test_what_is_no_order_ends_the_tasks_in_order_and_the_agent(
    agent: Agent, sent: bytes, tmp_path: Path
) -> None:
    agent.set_up()
    agent.start(tmp_path / "log")
    assert agent.next("lines")["lines"] == ["ready"]
    with contextlib.suppress(BrokenPipeError):
        agent.send(sent)
    assert agent.next("orphaned")["reason"].startswith("the launcher sent no order: ")
    assert agent.next("exit")["code"] == 143
    assert agent.process.wait(60) == 0
    assert (tmp_path / "log").read_text() == "ready\nsaved\n"
    assert (tmp_path / "errors").read_text() == ""


def old_run(parent: Path, number: int, days: float) -> Path:
    """Makes the logs of an old run."""
    folder = parent / f"20250101-{number:06}-ab12"
    folder.mkdir(parents=True)
    (folder / "worker-0.log").write_text("hello\n")
    then = time.time() - 86400 * days
    for path in (folder / "worker-0.log", folder):
        os.utime(path, (then, then))
    return folder


def test_a_host_forgets_the_logs_of_old_runs_but_not_of_one_that_lives(
    agent: Agent, tmp_path: Path
) -> None:
    parent = tmp_path / "hosts"
    lives, *old = [old_run(parent, number, 300 - number) for number in range(110)]
    recent = old_run(parent, 200, 0.5)
    others = [parent / "20250101-000000-ab12.txt", parent / "mine"]
    for path in others:
        path.mkdir()
    env = {**os.environ, "LAUNCH_RUN_ID": lives.name}
    with subprocess.Popen(["sleep", "300"], env=env) as task:
        try:
            # Popen returns a moment before the kernel shows the new program's variables.
            environ = Path(f"/proc/{task.pid}/environ")
            wait_for(lambda: lives.name.encode() in environ.read_bytes(), "the task's variables")
            agent.set_up(str(parent))
            agent.send(encode({"do": "beat"}))
            agent.next("beat")
        finally:
            task.kill()
    left = set(parent.iterdir())
    # The newest hundred are those of the last 99 of the old ones, and the recent one.
    assert left == {lives, *old[-99:], recent, *others}


def test_runs_that_wrote_in_the_last_day_stay_since_they_may_live_on_another_host(
    agent: Agent, tmp_path: Path
) -> None:
    runs = {old_run(tmp_path / "hosts", number, 0.5) for number in range(110)}
    agent.set_up(str(tmp_path / "hosts"))
    agent.send(encode({"do": "beat"}))
    agent.next("beat")
    assert set((tmp_path / "hosts").iterdir()) == runs


def test_a_host_without_logs_needs_none(agent: Agent, tmp_path: Path) -> None:
    agent.set_up(str(tmp_path / "hosts"))
    agent.send(encode({"do": "beat"}))
    agent.next("beat")
    assert not (tmp_path / "hosts").exists()


def test_an_agent_of_an_old_run_keeps_its_logs(agent: Agent, tmp_path: Path) -> None:
    mine = tmp_path / "hosts" / RUN
    mine.mkdir(parents=True)
    for number in range(105):
        old_run(tmp_path / "hosts", number, 10)
    os.utime(mine, (0, 0))
    other = Agent(tmp_path / "errors of another")
    try:
        agent.set_up()
        other.set_up(str(tmp_path / "hosts"))
        other.send(encode({"do": "beat"}))
        other.next("beat")
    finally:
        other.process.kill()
        other.process.wait()
        other.stdin.close()
        other.stdout.close()
    assert mine.exists()
    assert len(list((tmp_path / "hosts").iterdir())) == 101


def is_held(port: int) -> bool:
    with socket.socket() as other:
        try:
            other.bind(("", port))
        except OSError:
            return True
    return False


def test_a_port_is_held_until_others_are_asked_for(agent: Agent) -> None:
    agent.set_up()
    found = []
    for _ in range(2):
        agent.send(encode({"do": "ports", "count": 4}))
        found.append(agent.next("ports")["ports"])
        assert [is_held(port) for port in found[-1]] == [True] * 4
    assert len({port for ports in found for port in ports}) == 8
    assert [is_held(port) for port in found[0]] == [False] * 4


def test_the_agent_that_follows_another_one_holds_the_ports_of_its_tasks(
    agent: Agent, tmp_path: Path
) -> None:
    agent.set_up(successor=True)
    (chosen,) = hold(1)
    port = chosen.getsockname()[1]
    chosen.close()
    for _ in range(2):  # the task is started again, too
        agent.start(tmp_path / "log", "", port)
        agent.next("exit")
        assert is_held(port)


def test_a_program_that_complains_at_length_fits_into_a_message(
    agent: Agent, tmp_path: Path
) -> None:
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\nhead -c 3000000 /dev/zero | tr '\\0' x >&2\nexit 1\n")
    python.chmod(0o755)
    look = {"do": "look", "cwd": str(tmp_path), "python": str(python), "code": ["main.py"]}
    agent.send(encode({**look, "engine": None, "image": None, "data": None, "ports": []}))
    found = agent.next("looked")["python_error"]
    assert found.startswith(f"{python}: xxx")
    assert len(found) == 4096
