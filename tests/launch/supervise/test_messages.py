"""Messages of a host, in any order and number: none of them ends the launcher."""

import io
import json
import time
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from launch.agent.messages import read_event
from launch.backends.local.backend import TRANSPORT
from launch.cluster.host_list import on_this_machine
from launch.cluster.tasks import make_job
from launch.connect.connections import Connections, Event
from launch.connect.inbox import Inbox
from launch.connect.link import Link
from launch.record.run_folder import RunFolder
from launch.screen.display import Display
from launch.supervise.agents import Agents
from launch.supervise.run_loop import RunLoop
from launch.supervise.supervisor import Supervisor

JOB = make_job(on_this_machine(1, 1), [], {"localhost": [2222, 2223, 2224]})

TASKS = st.sampled_from(["master/0", "worker/0", "ps/0", "worker/7", ""])
TEXTS = st.text(st.characters(categories=None), max_size=20)
MESSAGES = st.one_of(
    st.sampled_from([{"event": "hello"}, {"event": "beat"}, {"event": "listening"}]),
    st.fixed_dictionaries({"event": st.just("ports"), "ports": st.lists(st.integers(1, 65535))}),
    st.fixed_dictionaries({"event": st.just("started"), "task": TASKS}),
    st.fixed_dictionaries(
        {
            "event": st.just("lines"),
            "task": TASKS,
            "lines": st.lists(TEXTS | st.just("step 3/9"), max_size=3),
            "dropped": st.integers(0, 9),
        }
    ),
    st.fixed_dictionaries(
        {
            "event": st.just("exit"),
            "task": TASKS,
            "code": st.none() | st.integers(-64, 255),
            "reason": TEXTS,
            "stragglers": st.integers(0, 9),
            "signals": st.lists(st.integers(1, 64), max_size=3),
            "port_taken": st.booleans(),
        }
    ),
    st.fixed_dictionaries({"event": st.sampled_from(["note", "told"]), "text": TEXTS}),
    st.fixed_dictionaries({"event": st.just("told"), "reason": TEXTS}),
    st.fixed_dictionaries(
        {"event": st.just("orphaned"), "reason": TEXTS, "by_platform": st.booleans()}
    ),
)


@settings(
    max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(sent=st.lists(MESSAGES, max_size=12))
def test_messages_in_any_order_and_number_are_handled(
    sent: "list[dict[str, Any]]", tmp_path: Path
) -> None:
    folder = RunFolder.create(tmp_path / "state", JOB)
    events: Inbox[Event] = Inbox(8)
    connections = Connections(JOB.cluster, folder.run_id, TRANSPORT, events)
    link = Link(["true"], lambda code, _: str(code), lambda *_: None)
    connections.use("localhost", link)
    supervisor = Supervisor(JOB.tasks, JOB.cluster.limits, 0, time.monotonic())
    display = Display(io.StringIO(), live=False)
    loop = RunLoop(supervisor, folder, display, events, [], keeps_logs=True)
    agents = Agents(supervisor, loop, connections, {task.name: {} for task in JOB.tasks})
    agents.start()
    for one in sent:
        message = read_event(json.dumps(one).encode())
        if message is not None:
            agents.handle(("localhost", link, message))
            agents.tick(time.monotonic())
    for log in loop._logs.values():
        log.close()
    display.close()
