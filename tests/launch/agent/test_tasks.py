"""What an agent tells of its tasks, and what it does while their container engine hangs.

The engine is a script: what real ones do, tests/system/test_launch_docker.py sees.
"""

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from launch.agent import tasks
from launch.agent.aside import Asides
from launch.agent.containers import Containers
from launch.agent.machine import Machine
from launch.agent.protocol import Outgoing
from launch.agent.tasks import Tasks
from testbeds.ports import free_ports
from tests.launch.agent.scene import Scene
from tests.launch.launcher import wait_for

# `run` writes a line and waits for ever; `ps` waits until it is let go, and finds no container.
_HANGING = """\
#!/bin/sh
cd {folder}
if [ "$1" = run ]; then echo $$; exec sleep 300; fi
touch asked
until [ -e go-on ]; do sleep 0.05; done
"""

# `run` starts a process that listens on a port, and ends before it, like a client that has lost the
# connection to its daemon. `kill` ends that process.
_LEAVING = """\
#!/bin/sh
cd {folder}
case "$1" in
  run)
    env -u LAUNCH_RUN_ID setsid {python} -c "$LISTEN" > listens &  # without the marks
    until [ -s listens ]; do sleep 0.05; done
    echo "lost the connection"
    exit 1 ;;
  ps) cat listens ;;
  kill) kill -9 "$2" ;;
  rm) : > listens ;;
esac
"""
_LISTEN = """\
import os, socket, sys, time
listening = socket.socket()
listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
listening.bind(("", {port}))
listening.listen()
print(os.getpid(), flush=True)
time.sleep(300)
"""


def _script(folder: Path, text: str) -> Path:
    path = folder / "docker"
    path.write_text(text.format(folder=folder, python=sys.executable))
    path.chmod(0o755)
    return path


@pytest.fixture
def hanging(tmp_path: Path) -> Iterator[Scene]:
    with Scene(tmp_path, _script(tmp_path, _HANGING)) as scene:
        yield scene
        (tmp_path / "go-on").touch()


def test_an_agent_answers_while_its_engine_hangs(hanging: Scene, tmp_path: Path) -> None:
    hanging.order(str(tmp_path / "docker"), "run")
    hanging.wait("lines")
    hanging.send("signal", task="worker/0", signal=9)
    wait_for((tmp_path / "asked").exists, "search for the container")
    hanging.send("ports", count=1)
    assert hanging.wait("ports", "exit")["event"] == "ports"
    (tmp_path / "go-on").touch()
    assert hanging.wait("exit")["code"] == -9


def test_a_start_that_waits_for_the_engine_can_be_taken_back(
    hanging: Scene, tmp_path: Path
) -> None:
    hanging.connect_again()
    hanging.order(str(tmp_path / "docker"), "run")
    wait_for((tmp_path / "asked").exists, "search for the container")
    hanging.send("signal", task="worker/0", signal=15)
    found = hanging.wait("started", "exit")
    assert (found["event"], found["code"], found["signals"]) == ("exit", -15, [15])
    (tmp_path / "go-on").touch()
    hanging.order(str(tmp_path / "docker"), "run")  # this one is started
    assert [hanging.wait("started", "lines")["event"] for _ in "12"] == ["started", "lines"]


def test_a_start_names_the_engine_that_does_not_work(tmp_path: Path) -> None:
    engine = _script(tmp_path, "#!/bin/sh\necho 'is the daemon running?' >&2\nexit 1\n")
    with Scene(tmp_path, engine) as scene:
        scene.connect_again()
        scene.order(str(engine), "run")
        found = scene.wait("started", "exit")
    assert (found["code"], found["reason"], found["port_taken"]) == (
        None,
        f"{engine} does not work: is the daemon running?",
        False,
    )


def test_a_container_that_outlives_its_client_is_removed_and_its_port_not_anothers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (port,) = free_ports(1)
    monkeypatch.setenv("LISTEN", _LISTEN.format(port=port))
    engine = _script(tmp_path, _LEAVING)
    with Scene(tmp_path, engine) as scene:
        scene.order(str(engine), "run", port=port)
        found = scene.wait("exit")
    assert (found["code"], found["port_taken"]) == (1, False)
    assert found["reason"] == (
        f"exit code 1: {engine} ended before its container, which was still running: removed"
    )


def test_a_silent_container_is_told_of_if_its_engine_does_not_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tasks, "_SILENT_SECS", 0)
    engine = _script(tmp_path, "#!/bin/sh\necho 'is the daemon running?' >&2\nexit 1\n")
    said: list[Any] = []
    machine = Machine()
    none: Any = None  # no task writes a line
    made = Tasks("silent", machine, none, lambda event, **fields: said.append(fields))
    silent: Any = SimpleNamespace(name="worker/0", pid=1, is_silent=lambda secs: True)
    made._running["worker/0"] = silent
    for _ in range(2):  # it is asked for once
        made._look_for_silence(Containers(str(engine)))
    asides: Asides = made._asides
    (child,) = asides._running.values()
    while not said:
        machine.wait(60)
    os.waitpid(child.pid, 0)
    assert said == [
        {
            "text": "worker/0 has not written a line for 0 s: "
            f"{engine} does not work: is the daemon running?"
        }
    ]


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

    def spawn(self, order: Any) -> Any:
        log = SimpleNamespace(new_error=lambda: None)
        return SimpleNamespace(name=order["task"], fd=100 + len(self.watched), log=log)


def test_the_output_of_a_task_that_outlived_its_kill_is_not_watched_beside_the_next_one() -> None:
    reading, writing = os.pipe()
    machine = Counting()
    made = Tasks("watched", machine, Outgoing(writing), lambda *_, **__: None)
    try:
        for _ in range(2):
            made.start({"task": "worker/0", "env": {}, "port": None})
            assert len(machine.watched) == 1
    finally:
        os.close(reading)
        os.close(writing)
