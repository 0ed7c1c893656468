"""What an agent tells of its tasks, and what it does while their container engine or disk hangs.

The engine is a script: what real ones do, tests/system/test_launch_docker.py sees.
"""

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Optional

import pytest

from launch.agent.protocol import Message
from launch.backends.local import TRANSPORT
from launch.cluster.host_list import on_this_machine
from launch.connect.connections import Connections
from testbeds.ports import free_ports
from testbeds.process_list import stop_process
from tests.launch.launcher import agent_pids, assert_nothing_left, has_ended, wait_for

# `run` writes a line and waits for ever; other commands wait while there is a file `hangs`.
_HANGING = """\
#!/bin/sh
cd {folder}
if [ "$1" = run ]; then echo $$; exec sleep 300; fi
touch asked
while [ -e hangs ]; do sleep 0.05; done
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
  ps) cat listens 2>&- ;;
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


class Scene:
    """A connected agent, as a context manager that ends it.

    Args:
      folder: the working directory, whose name makes the run's id unique in this process.
      engine: the container engine that the agent uses; None for plain processes.
    """

    def __init__(self, folder: Path, engine: Optional[Path] = None) -> None:
        self.run_id = f"scene-{os.getpid()}-{folder.name}"
        self.folder = folder
        containers = None if engine is None else {"engine": str(engine), "mounts": []}
        cluster = on_this_machine(0, 0, workdir=str(folder))
        self.connections = Connections(cluster, self.run_id, TRANSPORT, containers)
        self.events = self.connections.events

    def __enter__(self) -> "Scene":
        self.connections.open_all(lambda: False, lambda host: 0)
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.connections.close_all()
        assert_nothing_left(self.run_id, timeout_secs=10)

    def send(self, do: str, **content: Any) -> None:
        """Sends an order."""
        assert self.connections.send("localhost", {"do": do, **content})

    def order(self, *argv: str, port: Optional[int] = None) -> None:
        """Orders the start of worker/0."""
        order: Message = {"task": "worker/0", "argv": list(argv), "script": None, "env": {}}
        order |= {"cwd": str(self.folder), "masked": [], "gpus": [], "share": None, "last": False}
        self.send("start", **order, port=port)

    def start(self, code: str) -> int:
        """Starts a Python task, which writes its process id, and returns that."""
        self.order(sys.executable, "-c", code)
        return int(self.wait("lines")["lines"][0])

    def wait(self, event: str) -> Message:
        """Returns the next message about this event."""
        while (message := self.events.get(timeout=60)[2])["event"] != event:
            pass
        return message


def _script(folder: Path, text: str) -> Path:
    path = folder / "docker"
    path.write_text(text.format(folder=folder, python=sys.executable))
    path.chmod(0o755)
    return path


def test_an_agent_answers_while_its_engine_hangs(tmp_path: Path) -> None:
    engine = _script(tmp_path, _HANGING)
    with Scene(tmp_path, engine) as scene:
        scene.order(str(engine), "run")
        scene.wait("lines")
        (tmp_path / "asked").unlink()
        (tmp_path / "hangs").touch()
        scene.send("signal", task="worker/0", signal=9)
        wait_for((tmp_path / "asked").exists, "search for the container")
        link = scene.connections._links["localhost"]
        link.ask({"do": "sweep", "run": "none", "engine": None}, 10)  # half an engine's time
        scene.order(str(engine), "run")  # one that waits for the engine can be ended
        scene.wait("started")
        scene.send("signal", task="worker/0", signal=15)
        (tmp_path / "hangs").unlink()
        assert [scene.wait("exit")["code"] for _ in "12"] == [-9, -9]


def test_a_task_shows_what_an_engine_says_that_does_not_work(tmp_path: Path) -> None:
    engine = _script(tmp_path, "#!/bin/sh\necho 'is the daemon running?' >&2\nexit 125\n")
    with Scene(tmp_path, engine) as scene:
        scene.order(str(engine), "run")
        assert scene.wait("lines")["lines"][0] == "is the daemon running?"
        found = scene.wait("exit")
    assert (found["code"], found["port_taken"]) == (125, False)
    assert found["reason"] == (
        f"exit code 125: {engine} could not run the container; its last lines say why"
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


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    """An agent of plain processes, which a test may stop to decide what it learns at once."""
    with Scene(tmp_path_factory.mktemp("scene")) as scene:
        yield scene


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
    wait_for(lambda: has_ended(str(task)), "death of the task")
    scene.send("signal", task="worker/0", signal=15)
    os.kill(agent, signal.SIGCONT)
    found = scene.wait("exit")
    assert (found["code"], found["signals"]) == (-9, [])


def test_a_task_that_could_not_be_started_got_no_signal(scene: Scene) -> None:
    scene.order("/nowhere")
    found = scene.wait("exit")
    assert (found["code"], found["signals"]) == (None, [])
