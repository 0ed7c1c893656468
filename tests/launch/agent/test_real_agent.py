"""A real agent: its tasks, orders, signals and ports, and an engine or launcher that hangs.

The engine is a script: what real ones do, tests/system/test_launch_docker.py sees.
"""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Optional

import pytest

from launch.agent.main import Machine
from launch.agent.protocol import MAGIC, encode
from launch.agent.tcp_ports import hold
from launch.connect.link import agent_command, payload
from testbeds.ports import free_ports
from testbeds.process_list import stop_process
from tests.launch.launcher import assert_nothing_left, has_ended, put_script, wait_for

_WAITS = "import os, time; print(os.getpid(), flush=True); time.sleep(300)"
_SAVES = """\
import signal, sys, time
def save(*_):
    print("saved", flush=True)
    sys.exit(143)
signal.signal(signal.SIGTERM, save)
print("ready", flush=True)
while True:  # Python heeds a signal that comes right before a sleep only after it.
    time.sleep(0.1)
"""

# `run` writes a line and waits for ever; other commands wait while there is a file `hangs`.
_HANGING = """\
cd {folder}
if [ "$1" = run ]; then echo $$; exec sleep 300; fi
touch asked
while [ -e hangs ]; do sleep 0.05; done
"""

# `run` starts a process that listens on a port, and ends before it, like a client that has lost the
# connection to its daemon. `kill` ends that process.
_LEAVING = """\
cd {folder}
case "$1" in
  run)
    env -u LAUNCH_RUN_ID setsid {python} -c "$LISTEN" > listens &  # without the labels
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


class Agent:
    """An agent, started as on any host, as a context manager that kills it.

    Args:
      folder: the working directory, whose name makes the run's id unique in this process.
      engine: the container engine that the agent uses; None for plain processes.
      num_ports: how many ports it chooses, which are `ports`.
    """

    def __init__(self, folder: Path, engine: Optional[Path] = None, num_ports: int = 0) -> None:
        self.folder, self._run = folder, f"agent-{os.getpid()}-{folder.name}"
        with (folder / "errors").open("wb") as file:
            self.process = subprocess.Popen(
                agent_command(sys.executable, self._run),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=file,
            )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.stdin, self.stdout = self.process.stdin, self.process.stdout
        self.send(payload())
        assert self.stdout.readline() == MAGIC
        limits = {"lease_secs": 60, "stop_secs": 10, "alone": True}
        containers = None if engine is None else {"engine": str(engine), "mounts": []}
        self.order("begin", label="node.1", ports=num_ports, containers=containers, **limits)
        self.ports = self.next("ready")["ports"]

    def __enter__(self) -> "Agent":
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.process.kill()
        self.process.wait()
        with contextlib.suppress(BrokenPipeError):
            self.stdin.close()
        self.stdout.close()
        assert_nothing_left(self._run, timeout_secs=20)

    def send(self, data: bytes) -> None:
        self.stdin.write(data)
        self.stdin.flush()

    def order(self, do: str, **content: Any) -> None:
        self.send(encode({"do": do, **content}))

    def start(self, *argv: str, port: Optional[int] = None) -> None:
        """Orders the start of a task; one word is Python code."""
        words = [sys.executable, "-c", *argv] if len(argv) == 1 else argv
        order: dict[str, Any] = {
            "task": "worker/0",
            "argv": words,
            "cwd": str(self.folder),
            "env": {},
        }
        self.order("start", **order, masked=[], gpus=[], share=None, last=False, port=port)

    def signal(self, signum: int) -> None:
        self.order("signal", task="worker/0", signal=signum)

    def next(self, *events: str) -> dict[str, Any]:
        """Returns the next message about one of these events."""
        for line in self.stdout:
            message: dict[str, Any] = json.loads(line)
            if message["event"] in events:
                return message
        raise AssertionError(f"no {events}")


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[Agent]:
    with Agent(tmp_path, num_ports=4) as agent:
        yield agent


def _script(folder: Path, text: str) -> Path:
    return put_script(folder / "docker", text.format(folder=folder, python=sys.executable))


@pytest.mark.parametrize(
    ("sent", "reason"),
    [
        pytest.param(b'{"do":"start","ta', "the launcher has ended", id="cut off"),
        pytest.param(b"\xff" * (1 << 25), "the launcher has ended", id="without end"),
        (b"dance\n", "what the launcher sent is no order"),
        (b"[1]\n", "what the launcher sent is no order"),
        (b'{"do":"dance"}\n', "what the launcher sent is no order"),
    ],
)
def test_what_is_no_order_ends_the_tasks_in_order_and_the_agent(
    agent: Agent, sent: bytes, reason: str, tmp_path: Path
) -> None:
    agent.start(_SAVES)
    assert agent.next("lines")["lines"] == ["ready"]
    with contextlib.suppress(BrokenPipeError):
        agent.send(sent)
        if reason == "the launcher has ended":
            agent.stdin.close()
    assert agent.next("launcher_lost")["reason"] == reason
    assert agent.next("lines")["lines"] == ["saved"]
    assert agent.next("exit")["code"] == 143
    assert agent.process.wait(60) == 0
    assert (tmp_path / "errors").read_text() == ""


def test_on_a_host_without_threads_an_engine_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    def start(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", start)
    machine, done = Machine(), list[str]()
    machine.aside(lambda: "removed", done.append)
    machine.wait()
    assert done == ["removed"]


def is_held(port: int) -> bool:
    with socket.socket() as other:
        try:
            other.bind(("", port))
        except OSError:
            return True
    return False


def test_the_ports_of_tasks_are_held(agent: Agent) -> None:
    assert [is_held(port) for port in agent.ports] == [True] * 4
    (chosen,) = hold(1)  # as by an earlier agent
    port = chosen.getsockname()[1]
    chosen.close()
    for _ in range(2):  # the task is started again, too
        agent.start("", port=port)
        agent.next("exit")
        assert is_held(port)


def test_what_a_program_says_at_length_fits_into_a_message(agent: Agent, tmp_path: Path) -> None:
    python = put_script(tmp_path / "python", "head -c 3000000 /dev/zero | tr '\\0' x >&2\nexit 1")
    look = {"cwd": str(tmp_path), "python": str(python), "code": ["main.py"], "data": None}
    agent.order("probe", **look, engine=None, image=None, ports=[])
    error = agent.next("probed")["python_error"]
    assert error.startswith(f"{python}: xxx")
    assert len(error) == 4096


def test_ctrl_c_ends_no_agent_and_can_be_taken_by_a_task(agent: Agent) -> None:
    agent.process.send_signal(signal.SIGINT)
    agent.start("import signal; print(signal.getsignal(2) is not signal.SIG_IGN)")
    assert agent.next("lines")["lines"] == ["True"]


def test_lines_for_a_launcher_that_does_not_read_are_left_out_but_no_event(
    agent: Agent, tmp_path: Path
) -> None:
    agent.start(f"for i in range(100_000): print('x' * 400)\nopen({str(tmp_path / 'end')!r}, 'w')")
    wait_for((tmp_path / "end").exists, "the end of the task, which nothing holds up")
    found = [json.loads(agent.stdout.readline())]
    while found[-1]["event"] != "exit":
        found.append(json.loads(agent.stdout.readline()))
    assert found[-1]["code"] == 0
    assert (
        10_000
        < sum(len(message["lines"]) for message in found if message["event"] == "lines")
        < 60_000
    )


def test_the_end_of_a_task_names_the_signals_that_it_got(agent: Agent) -> None:
    agent.start(_WAITS)
    agent.next("lines")
    agent.signal(15)
    found = agent.next("exit")
    assert (found["code"], found["signals"]) == (-15, [15])


def test_a_signal_that_comes_after_a_tasks_death_is_not_one_that_it_got(agent: Agent) -> None:
    agent.start(_WAITS)
    (task,) = agent.next("lines")["lines"]
    stop_process(agent.process.pid)
    os.kill(int(task), signal.SIGKILL)
    wait_for(lambda: has_ended(task), "death of the task")
    agent.signal(15)
    agent.process.send_signal(signal.SIGCONT)
    found = agent.next("exit")
    assert (found["code"], found["signals"]) == (-9, [])


def test_a_task_that_could_not_be_started_got_no_signal(agent: Agent) -> None:
    agent.start("/nowhere", "")
    found = agent.next("exit")
    assert (found["code"], found["signals"]) == (None, [])


def test_an_agent_answers_while_its_engine_hangs(tmp_path: Path) -> None:
    engine = _script(tmp_path, _HANGING)
    with Agent(tmp_path, engine) as agent:
        agent.start(str(engine), "run")
        agent.next("lines")
        (tmp_path / "asked").unlink()
        (tmp_path / "hangs").touch()
        agent.signal(9)
        wait_for((tmp_path / "asked").exists, "search for the container")
        agent.order("reap", run="none", engine=None)
        assert agent.next("reaped", "exit")["event"] == "reaped"
        agent.start(str(engine), "run")  # one that waits for the engine can be ended
        agent.next("started")
        agent.signal(15)
        (tmp_path / "hangs").unlink()
        assert [agent.next("exit")["code"] for _ in "12"] == [-9, -9]


def test_a_task_shows_what_an_engine_says_that_does_not_work(tmp_path: Path) -> None:
    engine = _script(tmp_path, "echo 'is the daemon running?' >&2\nexit 125")
    with Agent(tmp_path, engine) as agent:
        agent.start(str(engine), "run")
        assert agent.next("lines")["lines"][0] == "is the daemon running?"
        found = agent.next("exit")
    assert found["code"] == 125
    assert found["reason"] == (
        f"exit code 125: {engine} could not run the container; its last lines say why"
    )


def test_a_container_that_outlives_its_client_is_removed_and_its_port_not_anothers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (port,) = free_ports(1)
    monkeypatch.setenv("LISTEN", _LISTEN.format(port=port))
    engine = _script(tmp_path, _LEAVING)
    with Agent(tmp_path, engine) as agent:
        agent.start(str(engine), "run", port=port)
        found = agent.next("exit")
    assert found["code"] == 1
