"""An agent with real tasks, which a test stops and continues to decide what it learns at once."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from launch.agent.protocol import Message
from testbeds.process_list import stop_process
from tests.launch.agent.scene import Scene
from tests.launch.launcher import agent_pids, wait_for


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    with Scene(tmp_path) as scene:
        yield scene


def is_zombie(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"


WAITS = "import os, time; print(os.getpid(), flush=True); time.sleep(300)"


def test_the_end_of_a_task_names_the_signals_that_it_got(scene: Scene) -> None:
    scene.start(WAITS)
    scene.send("signal", task="worker/0", signal=15)
    found = scene.wait("exit")
    assert (found["code"], found["signals"]) == (-15, [15])


def test_a_signal_that_comes_after_a_tasks_death_is_not_one_that_it_got(scene: Scene) -> None:
    task, (agent, *_) = scene.start(WAITS), agent_pids(scene.run_id)
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
