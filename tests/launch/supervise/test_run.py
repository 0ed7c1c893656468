"""What the launcher does with orders and messages that cross each other."""

import contextlib
import io
import json
import os
import queue
import signal
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Union

import pytest

from launch.agent.protocol import Message
from launch.backends.local.backend import TRANSPORT
from launch.cluster.host_list import on_this_machine
from launch.cluster.model import Limits
from launch.cluster.tasks import Job, make_job
from launch.connect.connections import Connections, Event
from launch.connect.inbox import Inbox
from launch.connect.link import Link
from launch.record import events as run_events
from launch.record.outcome import Cause, Outcome
from launch.record.run_folder import RunFolder
from launch.screen.display import Display
from launch.supervise import run
from launch.supervise.agents import Agents
from launch.supervise.run import _order_to_start, _with_free_ports, run_with_agents
from launch.supervise.run_loop import RunLoop
from launch.supervise.supervisor import Supervisor
from testbeds.ports import free_ports
from tests.launch.launcher import assert_nothing_left, make_workdir


def test_a_task_whose_host_is_not_reached_yet_is_not_started_after_a_stop(tmp_path: Path) -> None:
    cluster = on_this_machine(0, 0, workdir=str(make_workdir(tmp_path / "work")))
    cluster = replace(cluster, limits=Limits(stop_secs=10))
    job = make_job(cluster, ["steps=100000"], {"localhost": free_ports(1)})
    folder = RunFolder.create(tmp_path / "state", job)
    events: queue.SimpleQueue[Event] = queue.SimpleQueue()
    connections = Connections(cluster, folder.run_id, TRANSPORT, events)
    supervisor = Supervisor(job.tasks, cluster.limits, 0, time.monotonic())
    display = Display(io.StringIO(), live=False)
    loop = RunLoop(supervisor, folder, display, events, [], keeps_logs=False)
    log = str(folder.log_path("master/0"))
    orders = {"master/0": _order_to_start(job.tasks[0], {}, masked=[], log=log)}
    agents = Agents(supervisor, loop, connections, orders)
    try:
        agents.start()  # without a connection: it is made now, which takes a while
        agents.stop(signal.SIGTERM, 1)
        assert supervisor.outcome is not None
        while events.get(timeout=60)[2]["event"] != "connected":
            pass
    finally:
        connections.close_all()
        display.close()
    assert supervisor.states["master/0"].status == "ended"
    assert not folder.log_path("master/0").exists()
    assert_nothing_left(folder.run_id, timeout_secs=10)


@pytest.mark.parametrize("task", ["master/0", "worker/7"])
def test_a_host_is_not_believed_about_tasks_that_it_does_not_run(task: str, tmp_path: Path) -> None:
    cluster = on_this_machine(0, 0, workdir=str(make_workdir(tmp_path / "work")))
    job = make_job(cluster, [], {"localhost": free_ports(1)})
    folder = RunFolder.create(tmp_path / "state", job)
    events: queue.SimpleQueue[Event] = queue.SimpleQueue()
    connections = Connections(cluster, folder.run_id, TRANSPORT, events)
    link = Link(["true"], lambda code, _: str(code), lambda *_: None)
    connections.use("node2", link)
    supervisor = Supervisor(job.tasks, cluster.limits, 0, time.monotonic())
    supervisor.start()
    supervisor.started("master/0")
    shown = io.StringIO()
    display = Display(shown, live=False)
    agents = Agents(
        supervisor, RunLoop(supervisor, folder, display, events, [], False), connections, {}
    )
    failed = {
        "event": "exit",
        "task": task,
        "code": 1,
        "reason": "",
        "stragglers": 0,
        "signals": [],
        "port_taken": False,
    }
    agents.handle(("node2", link, failed))
    display.close()
    assert supervisor.states["master/0"].status == "running"
    assert f"node2: ignored a message about {task}, which it does not run" in shown.getvalue()


def test_the_search_for_ports_does_not_heed_a_connection_that_was_dropped(tmp_path: Path) -> None:
    cluster = on_this_machine(0, 0, workdir=str(tmp_path))
    events: Inbox[Event] = Inbox(8)
    connections = Connections(cluster, "run", TRANSPORT, events)
    dropped, current = (Link(["true"], lambda code, _: str(code), lambda *_: None) for _ in "12")
    connections.use("localhost", current)
    events.put(("localhost", dropped, {"event": "ports", "ports": [20001]}))
    events.put(("localhost", dropped, {"event": "lost"}))
    events.put(("localhost", current, {"event": "ports", "ports": [20002]}))
    ready = _with_free_ports(make_job(cluster, []), connections, events, [])
    assert isinstance(ready, Job)
    assert [task.port for task in ready.tasks] == [20002]


def _with_events(folder: Path, signals: list[int], *messages: Message) -> "Union[Job, Outcome]":
    """Looks for ports between two attempts, while an agent sends messages."""
    cluster = on_this_machine(0, 0, workdir=str(folder))
    events: Inbox[Event] = Inbox(8)
    connections = Connections(cluster, "run", TRANSPORT, events)
    link = Link(["true"], lambda code, _: str(code), lambda *_: None)
    connections.use("localhost", link)
    for message in messages:
        events.put(("localhost", link, message))
    return _with_free_ports(make_job(cluster, []), connections, events, signals)


TOLD: Message = {"event": "told", "reason": "the agent got SIGTERM"}
ORPHANED: Message = {"event": "orphaned", "reason": "the agent got SIGTERM", "by_platform": True}
PORTS: Message = {"event": "ports", "ports": [20001]}


def test_a_stop_between_two_attempts_is_the_users(tmp_path: Path) -> None:
    for messages in ((), (PORTS,)):
        found = _with_events(tmp_path, [signal.SIGINT], *messages)
        assert found == Outcome(130, "stopped by SIGINT", cause=Cause.USER)


@pytest.mark.parametrize("signals", [[], [signal.SIGTERM]])
def test_a_stop_of_the_platform_between_two_attempts_is_the_platforms(
    signals: list[int], tmp_path: Path
) -> None:
    found = _with_events(tmp_path, signals, TOLD, PORTS)
    assert found == Outcome(143, "localhost: the agent got SIGTERM", cause=Cause.PLATFORM)
    found = _with_events(tmp_path, signals, ORPHANED)
    assert found == Outcome(
        143, "localhost: its agent stopped: the agent got SIGTERM", cause=Cause.PLATFORM
    )


@pytest.fixture
def agents(tmp_path: Path) -> Iterator[Agents]:
    """The agents of a job that runs, with a clock that a test can set."""
    cluster = on_this_machine(0, 0, workdir=str(tmp_path))
    job = make_job(cluster, [], {"localhost": free_ports(1)})
    folder = RunFolder.create(tmp_path / "state", job)
    events: queue.SimpleQueue[Event] = queue.SimpleQueue()
    connections = Connections(cluster, folder.run_id, TRANSPORT, events)
    connections.use("localhost", Link(["true"], lambda code, _: str(code), lambda *_: None))
    supervisor = Supervisor(job.tasks, cluster.limits, 0, 0.0)
    display = Display(io.StringIO(), live=False)
    loop = RunLoop(supervisor, folder, display, events, [], keeps_logs=False)
    agents = Agents(supervisor, loop, connections, {"master/0": {}}, lambda: 0.0)
    agents.start()
    supervisor.started("master/0")
    yield agents
    display.close()


def _tell(agents: Agents, message: Message) -> None:
    agents.handle(("localhost", agents._connections._links["localhost"], message))


def _kills(agents: Agents) -> bool:
    return signal.SIGKILL in agents._supervisor.states["master/0"].signals


def test_a_sigterm_that_follows_the_agents_word_of_one_is_the_same_request(agents: Agents) -> None:
    _tell(agents, TOLD)
    for count, kills in ((1, False), (2, False), (3, True)):
        agents.stop(signal.SIGTERM, count)
        assert _kills(agents) is kills


def test_a_stop_counts_long_after_a_sigterm_that_slurm_has_sent_to_the_steps_alone(
    agents: Agents,
) -> None:
    _tell(agents, TOLD)
    agents._clock = lambda: 6.0
    for count, kills in ((1, False), (2, True)):
        agents.stop(signal.SIGTERM, count)
        assert _kills(agents) is kills


def test_agents_know_that_the_platform_has_ended_the_job(agents: Agents) -> None:
    assert agents.platforms_reason == ""
    _tell(agents, TOLD)
    assert agents.platforms_reason == "localhost: the agent got SIGTERM"


@pytest.mark.parametrize(
    ("is_platform", "expected"),
    [
        (False, Outcome(130, "stopped by SIGINT", cause=Cause.USER)),
        (True, Outcome(143, "localhost: the agent got SIGTERM", cause=Cause.PLATFORM)),
    ],
)
def test_a_stop_while_an_attempt_ends_whose_port_was_taken_is_the_outcome(
    is_platform: bool, expected: Outcome, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Loop:
        """An attempt that fails for its port, and is stopped while it ends."""

        has_stepped = False

        def __init__(self, *_: object) -> None:
            pass

        def run(self, agents: Agents) -> Outcome:
            agents.without_port.append("worker/0")
            if is_platform:
                agents.platforms_reason = "localhost: the agent got SIGTERM"
            else:
                os.kill(os.getpid(), signal.SIGINT)
            return Outcome(1, "worker/0 on localhost failed: exit code 1", cause=Cause.TASK_FAILED)

    monkeypatch.setattr(run, "RunLoop", Loop)
    job = make_job(on_this_machine(1, 0, workdir=str(make_workdir(tmp_path / "work"))), [])
    folder = RunFolder.create(tmp_path / "state", job)
    with contextlib.closing(Display(io.StringIO(), live=False)) as display:
        assert run_with_agents(job, folder, TRANSPORT, display) == expected
    status = folder.status()
    assert (status["exit_code"], status["reason"]) == (expected.exit_code, expected.reason)
    last = run_events.last_with_reason(folder)
    assert last is not None
    assert last.words() == f"run ends: {expected.reason}"
    assert_nothing_left(folder.run_id, timeout_secs=10)


def _events(folder: RunFolder) -> list[str]:
    """Returns the events of the whole run, not those of tasks."""
    lines = map(json.loads, run_events.path_of(folder).read_text().splitlines())
    found = (run_events.RunEvent(**line) for line in lines)
    return [event.words() for event in found if event.task is None]


@pytest.mark.parametrize("attempts", [0, 1])
def test_a_stop_while_ports_are_sought_is_in_the_runs_events(
    attempts: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Loop:
        """An attempt that fails for its port."""

        has_stepped = False

        def __init__(self, *_: object) -> None:
            pass

        def run(self, agents: Agents) -> Outcome:
            agents.without_port.append("worker/0")
            return Outcome(1, "worker/0 on localhost failed: exit code 1", cause=Cause.TASK_FAILED)

    searches: list[Job] = []

    def search(job: Job, *words: Any) -> "Union[Job, Outcome]":
        if len(searches) == attempts:
            os.kill(os.getpid(), signal.SIGINT)
        searches.append(job)
        return _with_free_ports(job, *words)

    monkeypatch.setattr(run, "RunLoop", Loop)
    monkeypatch.setattr(run, "_with_free_ports", search)
    job = make_job(on_this_machine(1, 0, workdir=str(make_workdir(tmp_path / "work"))), [])
    folder = RunFolder.create(tmp_path / "state", job)
    with contextlib.closing(Display(io.StringIO(), live=False)) as display:
        assert run_with_agents(job, folder, TRANSPORT, display).exit_code == 130
    why = "another program took the port of worker/0: starting the job again with other ports"
    again = f"restart: {why} (1 of 3)"
    words = "stopped by SIGINT" if attempts else "stopped before the start"
    assert _events(folder) == [
        *[again][:attempts],
        "stop: SIGINT to the launcher",
        f"run ends: {words}",
    ]
