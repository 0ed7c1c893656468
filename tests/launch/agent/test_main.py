"""An agent with real tasks, which a test stops and continues to decide what it learns at once."""

import os
import queue
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from launch.agent.machine import Machine
from launch.agent.main import Agent
from launch.agent.protocol import Message, Outgoing
from launch.backends.local.backend import TRANSPORT
from launch.cluster.host_list import on_this_machine
from launch.connect.connections import Connections, Event
from testbeds.process_list import stop_process
from tests.launch.launcher import agent_pids, assert_nothing_left, wait_for

RUN_ID = f"signals-{os.getpid()}"


class Scene:
    """A connected agent."""

    def __init__(self, folder: Path) -> None:
        self.events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self.folder = folder
        cluster = on_this_machine(0, 0, workdir=str(folder))
        self.connections = Connections(cluster, RUN_ID, TRANSPORT, self.events)
        self.connections.open_all(lambda: False)

    def send(self, do: str, **content: Any) -> None:
        assert self.connections.send("localhost", {"do": do, **content})

    def start(self, code: str) -> int:
        """Starts a Python task, which writes its process id, and returns that."""
        order: Message = {"task": "worker/0", "argv": [sys.executable, "-c", code], "script": None}
        order |= {"cwd": str(self.folder), "env": {}, "masked": [], "gpus": None, "share": None}
        self.send("start", **order, port=None, log=str(self.folder / "log"), last=False)
        return int(self.wait("lines")["lines"][0])

    def wait(self, event: str) -> Message:
        while True:
            message = self.events.get(timeout=60)[2]
            if message["event"] == event:
                return message


def is_zombie(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    scene = Scene(tmp_path)
    yield scene
    scene.connections.close_all()
    assert_nothing_left(RUN_ID, timeout_secs=10)


WAITS = "import os, time; print(os.getpid(), flush=True); time.sleep(300)"


def test_the_end_of_a_task_names_the_signals_that_it_got(scene: Scene) -> None:
    scene.start(WAITS)
    scene.send("signal", task="worker/0", signal=15)
    found = scene.wait("exit")
    assert (found["code"], found["signals"]) == (-15, [15])


def test_a_signal_that_comes_after_a_tasks_death_is_not_one_that_it_got(scene: Scene) -> None:
    task, (agent, *_) = scene.start(WAITS), agent_pids(RUN_ID)
    stop_process(agent)
    os.kill(task, signal.SIGKILL)
    wait_for(lambda: is_zombie(task), "death of the task")
    scene.send("signal", task="worker/0", signal=15)
    os.kill(agent, signal.SIGCONT)
    found = scene.wait("exit")
    assert (found["code"], found["signals"]) == (-9, [])


def test_a_task_that_could_not_be_started_got_no_signal(scene: Scene) -> None:
    order: Message = {"task": "worker/0", "argv": ["/nowhere"], "script": None, "env": {}}
    order |= {"cwd": str(scene.folder), "masked": [], "gpus": None, "share": None, "port": None}
    scene.send("start", **order, log=str(scene.folder / "log"), last=False)
    found = scene.wait("exit")
    assert (found["code"], found["signals"]) == (None, [])


class Counting(Machine):
    """A machine that starts nothing and notes what is watched."""

    def __init__(self) -> None:
        super().__init__()
        self.watched: list[int] = []

    def watch(self, fd: int, ready: Any) -> None:
        self.watched.append(fd)

    def unwatch(self, fd: int) -> None:
        self.watched.remove(fd)

    def end_marked(self, patience_secs: float, **marks: str) -> list[int]:
        return []

    def spawn(self, order: Message) -> Any:
        log = SimpleNamespace(new_error=lambda: None)
        return SimpleNamespace(name=order["task"], fd=100 + len(self.watched), log=log)


def test_the_output_of_a_task_that_outlived_its_kill_is_not_watched_beside_the_next_one() -> None:
    reading, writing = os.pipe()
    machine = Counting()
    agent = Agent(RUN_ID, machine, outgoing=Outgoing(writing))
    try:
        for _ in range(2):
            agent._start({"task": "worker/0", "env": {}, "port": None})
            assert len(machine.watched) == 1
    finally:
        os.close(reading)
        os.close(writing)
