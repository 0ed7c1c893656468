"""Runs a job through agents: one on each host, whatever way leads there.

The supervisor decides; this carries its decisions to the agents, and what they report back to it.
"""

import os
import queue
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from types import FrameType
from typing import Optional

from launch.agent.log_file import LogFile
from launch.agent.protocol import Message
from launch.cluster.ports import num_ports
from launch.cluster.tasks import SCRIPT, Job, Task, make_job
from launch.connect.connection import Link
from launch.connect.fleet import Connections, Event
from launch.connect.transport import OPEN_SECS, Transport
from launch.errors import HostError, LaunchError
from launch.record.outcome import Outcome
from launch.record.run_folder import RunFolder
from launch.screen.display import Display
from launch.supervise.board import Board
from launch.supervise.supervisor import Action, Note, Signal, Start, Supervisor

_LOOK_SECS = 0.25
_STATUS_SECS = 1.0
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def run_with_agents(
    job: Job,
    folder: RunFolder,
    transport: Transport,
    display: Display,
    adapt: Optional[Callable[[Job], Job]] = None,
    containers: Optional[Message] = None,
) -> Outcome:
    """Sees a job through; whatever happens, no agent is left behind.

    Args:
      job: what to run.
      folder: for its states and logs.
      transport: the way to the hosts.
      display: what the user sees.
      adapt: changes the tasks' commands once every port is known, for backends that wrap them.
      containers: what agents must know of containers; None where tasks are plain processes.

    Raises:
      LaunchError: a variable to pass is not set here.
      HostError: a host could not be reached in the beginning.
    """
    events: queue.SimpleQueue[Event] = queue.SimpleQueue()
    signals: list[int] = []

    def note(signum: int, _: Optional[FrameType]) -> None:
        signals.append(signum)
        events.put(("", None, {"event": "signal", "signum": signum}))

    passed = passed_values(job.cluster.passed)
    connections = Connections(job.cluster, folder.run_id, transport, events, containers)
    with handling(note):
        try:
            if connections.open_all(lambda: bool(signals)):
                if job.cluster.ports.low is None:
                    job = _with_free_ports(job, connections, events)
                job = job if adapt is None else adapt(job)
                return _Run(job, folder, transport, display, connections).run(events, passed)
            return Outcome(128 + signals[0], "stopped before the start")
        finally:
            connections.close_all()


def passed_values(names: Sequence[str]) -> dict[str, str]:
    """The values here of the variables to pass; LaunchError if one is not set."""
    missing = [name for name in names if name not in os.environ]
    if missing:
        raise LaunchError(
            f"pass_environment: {', '.join(missing)} not set here; export it, or leave it out"
        )
    return {name: os.environ[name] for name in names}


@contextmanager
def handling(handler: "signal._HANDLER") -> Iterator[None]:
    """Takes the signals that ask for the end, for a while."""
    before = {signum: signal.signal(signum, handler) for signum in _SIGNALS}
    try:
        yield
    finally:
        for signum, old in before.items():
            signal.signal(signum, old)


def _with_free_ports(job: Job, connections: Connections, events: "queue.SimpleQueue[Event]") -> Job:
    """Asks every host for free ports, and works out the tasks with them."""
    found: dict[str, list[int]] = {}
    for host in job.cluster.hosts:
        connections.send(host.name, {"do": "ports", "count": num_ports(host)})
    deadline = time.monotonic() + OPEN_SECS
    while len(found) < len(job.cluster.hosts):
        try:
            name, link, message = events.get(timeout=max(0, deadline - time.monotonic()))
        except queue.Empty:
            missing = [host.name for host in job.cluster.hosts if host.name not in found]
            raise HostError(f"{', '.join(missing)}: no word about free ports") from None
        if message["event"] == "ports":
            found[name] = message["ports"]
        elif message["event"] == "lost" and link is not None:
            raise HostError(f"{name}: {link.why()}")
        elif message["event"] == "signal":
            events.put((name, link, message))  # for the supervisor
            time.sleep(0.05)
    return make_job(job.cluster, job.arguments, found)


class _Run:
    def __init__(
        self,
        job: Job,
        folder: RunFolder,
        transport: Transport,
        display: Display,
        connections: Connections,
    ) -> None:
        self._folder = folder
        self._transport = transport
        self._display = display
        self._connections = connections
        self._job = job
        self._tasks = {task.name: task for task in job.tasks}
        self._limits = job.cluster.limits
        self._supervisor = Supervisor(job.tasks, self._limits, job.cluster.restarts)
        self._board = Board(self._supervisor.states)
        self._logs: dict[str, LogFile] = {}
        self._waiting: dict[str, list[Message]] = {}  # orders for hosts that are being reconnected
        self._was_told = False

    def run(self, events: "queue.SimpleQueue[Event]", passed: dict[str, str]) -> Outcome:
        """Supervises until the job is over."""
        self._passed = passed
        supervisor = self._supervisor
        self._carry_out(supervisor.start(time.monotonic()))
        next_beat = next_status = 0.0
        while supervisor.outcome is None:
            self._hear(events)
            now = time.monotonic()
            self._carry_out(supervisor.tick(now))
            if now >= next_beat:
                silent = self._connections.beat(now)
                # After a pause of our own (Ctrl-Z), what they said lies unread.
                was_away = now > next_beat + 1 and next_beat > 0
                next_beat = now + self._limits.lease_secs / 6
                for name, link in () if was_away else silent:
                    self._lose(name, link, f"no word from it for {self._limits.lease_secs:g} s")
            if now >= next_status:
                next_status = now + _STATUS_SECS
                self._show(None)
        self._show(supervisor.outcome)
        for log in self._logs.values():
            log.close()
        return replace(supervisor.outcome, details=self._details(supervisor.outcome.task))

    def _show(self, outcome: Optional[Outcome]) -> None:
        self._display.table(self._board.rows())
        self._folder.write_status(self._board.status(outcome))

    def _details(self, task: Optional[str]) -> tuple[str, ...]:
        """A failed task's last lines, and where the rest is."""
        if task is None:
            return ()
        lines = (f"  | {line}" for line in self._board.last_lines(task))
        return (*lines, f"  log: {self._folder.log_path(task)}")

    def _hear(self, events: "queue.SimpleQueue[Event]") -> None:
        """Waits a moment for events, and takes those that have come."""
        try:
            self._handle(*events.get(timeout=_LOOK_SECS))
            for _ in range(1000):
                self._handle(*events.get_nowait())
        except queue.Empty:
            return

    def _handle(self, host: str, link: Optional[Link], message: Message) -> None:
        now = time.monotonic()
        event, name = message["event"], message.get("task", "")
        if event == "signal" and self._was_told and message["signum"] == signal.SIGTERM:
            self._was_told = False  # Slurm tells the agents and this process: it asks once.
        elif event == "signal":
            self._display.note(f"{signal.Signals(message['signum']).name}: stopping all tasks")
            self._carry_out(self._supervisor.stop(message["signum"], now))
        elif event in ("connected", "unreachable"):
            self._reconnected(host, link, message)
        elif not self._connections.is_current(host, link) or link is None:
            return  # from an agent that was given up
        elif event == "lost":
            self._lose(host, link, f"lost: {link.why()}")
        elif event == "orphaned":
            self._lose(host, link, f"lost: its agent had given up, {message['reason']}")
        elif event == "told":
            if not self._supervisor.ending:
                self._was_told = True
                reason = f"{host}: {message['reason']}"
                self._display.note(f"{reason}; stopping all tasks")
                self._carry_out(self._supervisor.stop(signal.SIGTERM, now, reason))
        elif event == "lines":
            self._take_lines(name, host, message)
        elif event == "started":
            self._supervisor.started(name)
        elif event == "exit":
            if message["stragglers"]:
                self._display.note(f"{name} left {message['stragglers']} processes behind: ended")
            ended = self._supervisor.ended(name, message["code"], now, message["reason"])
            self._carry_out(ended)
        elif event == "refused":
            self._carry_out(self._supervisor.ended(name, None, now, message["reason"]))
        elif event == "note":
            self._display.note(f"{host}: {message['text']}")

    def _take_lines(self, name: str, host: str, message: Message) -> None:
        lines = list(message["lines"])
        if message["dropped"]:
            lines.insert(0, f"[{message['dropped']:,} lines are only in the log on {host}]")
        stepped = self._board.take(name, lines)
        self._supervisor.heard(time.monotonic(), stepped=stepped)
        if not self._transport.keeps_logs:
            if name not in self._logs:
                self._logs[name] = LogFile(str(self._folder.log_path(name)))
            self._logs[name].write("".join(f"{line}\n" for line in lines).encode())
        for line in lines:
            self._display.task_line(name, host, line)

    def _lose(self, host: str, link: Link, reason: str) -> None:
        """Counts a host's tasks as ended: its agent sees to that, there is no one to ask."""
        if not self._connections.is_current(host, link):
            return
        self._connections.drop(host)
        for name, task in self._tasks.items():
            if task.host.name == host:
                now = time.monotonic()
                self._carry_out(self._supervisor.ended(name, None, now, reason))

    def _reconnected(self, host: str, link: Optional[Link], message: Message) -> None:
        self._connections.reopened(host, link)
        for order in self._waiting.pop(host, []):
            if not self._connections.send(host, order):
                name, now = order["task"], time.monotonic()
                self._carry_out(self._supervisor.ended(name, None, now, message["reason"]))

    def _carry_out(self, actions: Sequence[Action]) -> None:
        for action in actions:
            if isinstance(action, Note):
                self._display.note(action.text)
                continue
            host = self._tasks[action.task].host.name
            if isinstance(action, Signal):
                order = {"do": "signal", "task": action.task, "signal": int(action.signum)}
                self._connections.send(host, order)
            elif isinstance(action, Start):
                order = self._order(self._tasks[action.task])
                if not self._connections.send(host, order):
                    self._waiting.setdefault(host, []).append(order)
                    self._connections.reopen(host)

    def _order(self, task: Task) -> Message:
        environment = {
            "PYTHONUNBUFFERED": "1",
            **dict(self._job.cluster.environment),
            **self._passed,
            "TF_CONFIG": task.tf_config,
        }
        return {
            "do": "start",
            "task": task.name,
            "argv": list(task.argv),
            "script": SCRIPT if SCRIPT in task.argv else None,
            "cwd": task.host.workdir,
            "env": environment,
            "masked": sorted(self._passed),
            "gpus": task.devices.gpus,
            "share": task.devices.share,
            "port": task.port,
            "log": self._transport.log_path(self._folder.log_path(task.name), self._folder.run_id),
            "last": task.task_type == "ps",
        }
