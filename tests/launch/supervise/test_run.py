"""What the launcher does with orders and messages that cross each other."""

import io
import queue
import signal
import time
from dataclasses import replace
from pathlib import Path

import pytest

from launch.backends.local.backend import TRANSPORT
from launch.cluster.host_list import on_this_machine
from launch.cluster.model import Limits
from launch.cluster.tasks import make_job
from launch.connect.connections import Connections, Event
from launch.connect.inbox import Inbox
from launch.connect.link import Link
from launch.record.run_folder import RunFolder
from launch.screen.display import Display
from launch.supervise.agents import Agents
from launch.supervise.run import _order_to_start, _with_free_ports
from launch.supervise.run_loop import RunLoop
from launch.supervise.supervisor import Supervisor
from testbeds.processes import free_ports
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
    assert ready is not None
    assert [task.port for task in ready.tasks] == [20002]
