"""The run loop and the agents' orders and messages, which may cross each other."""

import contextlib
import io
import json
import os
import queue
import signal
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Optional
from unittest.mock import Mock

import pytest

from launch.agent.protocol import Message
from launch.backends.local import TRANSPORT
from launch.cluster.host_list import on_this_machine
from launch.cluster.model import Host, Limits
from launch.cluster.tasks import Devices, Task, make_job
from launch.connect.connections import Connections
from launch.record.result import ExitReason, Result
from launch.record.run_folder import RunFolder
from launch.screen.display import Display
from launch.supervise import run_loop
from launch.supervise.run import Agents, run_with_agents
from launch.supervise.run_loop import RunLoop, stop_signals
from launch.supervise.supervisor import Start, Supervisor
from launch.supervise.task_state import TaskState
from testbeds.ports import free_ports
from tests.launch.launcher import assert_nothing_left, make_workdir, wait_for

PREEMPTED: Message = {"event": "preempted", "reason": "the agent got SIGTERM"}


@pytest.fixture
def shown() -> io.StringIO:
    """What the display shows."""
    return io.StringIO()


@pytest.fixture
def agents(tmp_path: Path, shown: io.StringIO) -> Iterator[Agents]:
    """The agents of a job that runs, with a clock that a test can set."""
    cluster = on_this_machine(0, 0, workdir=str(tmp_path))
    job = make_job(cluster, [], {"localhost": free_ports(1)})
    folder = RunFolder.create(tmp_path / "state", job)
    connections = Connections(cluster, folder.run_id, TRANSPORT)
    connections.use("localhost", Mock())
    supervisor = Supervisor(job.tasks, cluster.limits, 0, 0.0)
    display = Display(shown, live=False)
    loop = RunLoop(supervisor, folder, display, connections.events, [])
    orders = {"master/0": {"task": "master/0"}}
    agents = Agents(supervisor, loop, connections, orders, lambda: 0.0)
    agents.start()
    supervisor.started("master/0")
    yield agents
    display.close()


@pytest.mark.parametrize("task", ["master/0", "worker/7"])
def test_a_host_is_not_believed_about_tasks_that_it_does_not_run(
    task: str, agents: Agents, shown: io.StringIO
) -> None:
    link = Mock()
    agents._connections.use("node2", link)
    failed = {"event": "exit", "task": task, "code": 1, "reason": ""}
    agents.handle(("node2", link, {**failed, "signals": []}))
    assert agents._supervisor.states["master/0"].status == "running"
    wait_for(lambda: shown.getvalue(), "the note")
    assert "node2: ignored a message about a task that it does not run" in shown.getvalue()


def test_a_host_that_sends_what_no_agent_does_is_lost_with_a_clear_line(
    agents: Agents, shown: io.StringIO
) -> None:
    _tell(agents, {"event": "exit", "task": "master/0", "code": [], "reason": "", "signals": []})
    assert agents._supervisor.states["master/0"].status == "failed"
    (line,) = [line for line in shown.getvalue().splitlines() if "its agent sent" in line]
    assert line.startswith("master/0 on localhost failed: lost: its agent sent {'event': 'exit', ")


def _tell(agents: Agents, message: Message) -> None:
    agents.handle(("localhost", agents._connections._links["localhost"], message))


@pytest.mark.parametrize("signals", [(2, 2), (15, 15, 2, 2)], ids=str)
def test_a_sigterm_that_follows_the_agents_word_of_one_is_the_platforms(
    agents: Agents, signals: Sequence[int]
) -> None:
    _tell(agents, PREEMPTED)
    state = agents._supervisor.states["master/0"]
    for number, signum in enumerate(signals, 1):
        agents.stop(signum)
        assert (signal.SIGKILL in state.signals) is (number == len(signals))


def test_a_start_that_waits_for_a_lost_host_is_withdrawn_once_the_job_is_to_end(
    agents: Agents, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agents._connections, "reopen", lambda host: None)
    state = agents._supervisor.states["master/0"]
    state.status = "starting"
    del agents._connections._links["localhost"]
    agents._carry_out([Start("master/0")])
    agents.stop(signal.SIGINT)
    assert (state.status, state.signals) == ("ended", (signal.SIGTERM,))
    link = Mock()
    agents.handle(("localhost", link, {"event": "connected"}))
    assert agents._connections.is_current("localhost", link)
    assert agents._waiting == {}


def test_a_host_that_cannot_be_reached_is_tried_again_without_a_restart_for_rejoin_secs(
    agents: Agents, shown: io.StringIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[float] = []
    reopen = lambda host, wait_secs=0.0: waits.append(wait_secs)  # noqa: E731
    monkeypatch.setattr(agents._connections, "reopen", reopen)
    job = make_job(on_this_machine(1, 1), [], {"localhost": free_ports(3)})
    supervisor = Supervisor(job.tasks, job.cluster.limits, 3, 0.0)
    del agents._connections._links["localhost"]
    orders: dict[str, Message] = {name: {"task": name} for name in supervisor.states}
    now = [0.0]
    connections, loop = agents._connections, agents._loop
    agents = Agents(supervisor, loop, connections, orders, lambda: now[0])
    agents.start()
    for secs in (10.0, 609.0, 610.0):
        assert {state.status for state in supervisor.states.values()} == {"starting"}
        now[0] = secs
        agents.handle(("localhost", None, {"event": "unreachable", "reason": "node1: no route"}))
    assert waits == [0.0, 5.0, 5.0]
    assert shown.getvalue().count("node1: no route; tried again for 600 s (rejoin_secs)\n") == 1
    states = supervisor.states.values()
    assert sorted(state.status for state in states) == ["ended", "ended", "failed"]
    assert {state.restarts for state in states} == {0}


def test_a_job_that_ends_for_want_of_a_host_that_is_tried_again_names_that_host(
    agents: Agents, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agents._connections, "reopen", lambda host, wait_secs=0.0: None)
    job = make_job(on_this_machine(1, 1), [], {"localhost": free_ports(3)})
    now, supervisor = [0.0], Supervisor(job.tasks, job.cluster.limits, 0, 0.0)
    ps = supervisor.states["ps/0"]
    ps.task = replace(ps.task, host=replace(ps.task.host, name="far"))
    orders: dict[str, Message] = {name: {"task": name} for name in supervisor.states}
    agents._connections.rejoin_secs = 6000
    found = (supervisor, agents._loop, agents._connections, orders, lambda: now[0])
    agents = Agents(*found)
    agents.start()
    supervisor.heard(0.0, stepped=True)
    for now[0] in (1000.0, 2000.0):  # idle_secs, 1,800, is no limit of this wait
        agents.handle(("far", None, {"event": "unreachable", "reason": "far: no route"}))
        agents._carry_out(supervisor.tick(now[0]))
        assert not supervisor.ending
    failed = {"event": "exit", "task": "worker/0", "code": 1, "reason": "", "signals": []}
    _tell(agents, failed)
    expected = supervisor.expected
    assert expected is not None
    assert (expected.cause, expected.exit_code) == (ExitReason.HOST_LOST, 1)
    assert expected.reason == "ps/0 on far failed: far: no route"


def test_after_an_error_of_the_launcher_itself_the_tasks_save(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(loop: RunLoop, task: str, *_: object) -> None:
        if task == "master/0":
            raise RuntimeError("a fault of the launcher")

    monkeypatch.setattr(RunLoop, "take_lines", fail)
    with pytest.raises(RuntimeError, match="a fault of the launcher"):
        run_of(tmp_path, "steps=1000")
    (folder,) = (tmp_path / "state").iterdir()
    saved = tmp_path / "work" / f"saved-master-0-{folder.name}"
    wait_for(saved.exists, "the master's checkpoint", 20)
    assert_nothing_left(folder.name, timeout_secs=20)


def run_of(folder: Path, *arguments: str) -> tuple[RunFolder, Result]:
    """Runs a job of a master and a worker under an agent here."""
    job = make_job(on_this_machine(1, 0, workdir=str(make_workdir(folder / "work"))), arguments)
    found = RunFolder.create(folder / "state", job)
    with contextlib.closing(Display(io.StringIO(), live=False)) as display:
        return found, run_with_agents(job, found, TRANSPORT, display)


LoopEvent = Callable[[], None]


class Listener(Supervisor):
    """Decides nothing of its own; a test sets the result."""

    def __init__(self) -> None:
        host = Host("node0", "node0", (), "/data")
        super().__init__([Task("worker", 0, host, 2222, Devices(), "{}", ())], Limits(), 0, 0.0)
        self.states["worker/0"].status = "running"
        self.stepped: list[bool] = []

    def heard(self, now: float, *, stepped: bool) -> None:
        self.stepped.append(stepped)


class Driver:
    """Calls the events that it is handed, and remembers what else it is told."""

    def __init__(self, first: Callable[[], None] = lambda: None) -> None:
        self.start = first
        self.stops: list[int] = []
        self.ticks: list[Callable[[], None]] = []
        self.late: list[Callable[[], None]] = []

    def handle(self, event: LoopEvent) -> None:
        event()

    def stop(self, signum: int) -> None:
        self.stops.append(signum)

    def tick(self, now: float) -> None:
        if self.ticks:
            self.ticks.pop(0)()

    def has_lines_to_come(self) -> bool:
        if self.late:
            self.late.pop()()
        return bool(self.late)


class Scene:
    """A loop and what is around it."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True)
        self.folder, self.screen = RunFolder(folder), io.StringIO()
        self.supervisor, self.signals = Listener(), list[int]()
        self.display = Display(self.screen, live=False)
        events: queue.SimpleQueue[LoopEvent] = queue.SimpleQueue()
        self.loop = RunLoop(self.supervisor, self.folder, self.display, events, self.signals)

    def lines(self, *lines: str) -> LoopEvent:
        return lambda: self.loop.take_lines("worker/0", "node0", lines)

    def end(self, exit_code: int = 0, task: Optional[str] = None) -> None:
        self.supervisor.result = Result(exit_code, "it is over", task)

    def run(self, *events: LoopEvent, driver: Optional[Driver] = None) -> Result:
        finals: list[LoopEvent] = [self.end] if driver is None else []
        for event in [*events, *finals]:
            self.loop.events.put(event)
        result = self.loop.supervise(driver or Driver())
        self.display.close()
        return result


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path / "run")


def test_lines_are_shown_and_the_status_file_has_the_outcome_in_the_end(scene: Scene) -> None:
    scene.run(scene.lines("step 3/9", "hello"), scene.lines("x" * 5000))
    lines = ("step 3/9", "hello", "x" * 4096)
    assert scene.screen.getvalue() == "".join(f"[worker/0 node0] {line}\n" for line in lines)
    assert scene.supervisor.stepped == [True, False]
    status = json.loads((scene.folder.path / "status.json").read_text())
    assert (status["exit_code"], status["reason"]) == (0, "it is over")
    assert status["tasks"][0]["step"] == "3/9"


def test_a_failed_tasks_last_lines_and_log_are_in_the_outcome(scene: Scene) -> None:
    scene.folder.output_log.touch()
    result = scene.run(
        scene.lines("a", " ", "b"), lambda: scene.end(3, "worker/0"), driver=Driver()
    )
    assert result.details == ("  | a", "  | b", f"  log: {scene.folder.output_log}")


def test_what_the_job_saved_is_what_its_lead_saved(scene: Scene) -> None:
    worker = scene.supervisor.states["worker/0"]
    master = TaskState(replace(worker.task, task_type="master"), "running")
    scene.supervisor.states["master/0"] = master
    worker.take(["saved here/model.ckpt-3"])
    assert scene.run(lambda: scene.end(143), driver=Driver()).details == ()
    master.take(["saved output/model.ckpt-3", "stopped by signal 15"])
    assert scene.loop.supervise(Driver()).details == ("saved output/model.ckpt-3",)


def test_each_signal_is_heeded_once(scene: Scene) -> None:
    driver = Driver(lambda: scene.signals.append(15))
    driver.ticks = [lambda: scene.signals.append(2), scene.end]
    scene.run(driver=driver)
    assert driver.stops == [15, 2]


def test_lines_that_are_still_to_come_are_waited_for(scene: Scene) -> None:
    driver = Driver()
    driver.late = [lambda: scene.loop.events.put(scene.lines("last"))] * 2
    scene.run(scene.end, driver=driver)
    assert scene.screen.getvalue() == "[worker/0 node0] last\n"


def test_lines_that_do_not_come_are_named(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_loop, "_LAST_LINES_SECS", 0.0)
    driver = Driver()
    driver.late = [lambda: None] * 1_000_000
    scene.run(scene.end, driver=driver)
    assert "a task's last lines did not come within 0 s" in scene.screen.getvalue()


STOPS = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM)


@pytest.fixture
def as_in_a_shell() -> Iterator[None]:
    """Signals that are not ignored, though the tests may run in the background or under nohup."""
    before = {signum: signal.signal(signum, signal.SIG_DFL) for signum in STOPS}
    yield
    for signum, handler in before.items():
        signal.signal(signum, handler)


@pytest.mark.usefixtures("as_in_a_shell")
def test_signals_that_ask_for_the_end_are_taken_for_a_while() -> None:
    with stop_signals() as signals:
        for signum in STOPS:
            os.kill(os.getpid(), signum)
    assert sorted(signals) == sorted(STOPS)
    assert {signal.getsignal(signum) for signum in STOPS} == {signal.SIG_DFL}


@pytest.mark.usefixtures("as_in_a_shell")
def test_the_end_of_a_terminal_that_is_told_twice_is_one_signal() -> None:
    """A second one would keep tasks from saving; a second one of the others asks for that."""
    told: list[int] = []
    with stop_signals(told.append) as signals:
        for signum in (signal.SIGHUP, signal.SIGHUP, signal.SIGTERM, signal.SIGTERM):
            os.kill(os.getpid(), signum)
    assert signals == told == [signal.SIGHUP, signal.SIGTERM, signal.SIGTERM]


@pytest.mark.usefixtures("as_in_a_shell")
def test_a_signal_that_is_ignored_stays_ignored() -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as nohup does it
    with stop_signals() as signals:
        os.kill(os.getpid(), signal.SIGHUP)
        os.kill(os.getpid(), signal.SIGTERM)
    assert signals == [signal.SIGTERM]
    assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
