"""Runs a job with one agent on each host, over any transport."""

import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Optional

from launch.agent.protocol import Message
from launch.cluster.model import FREE_PORTS
from launch.cluster.tasks import Job, make_job, num_ports, script_of, with_token
from launch.connect.connections import Connections, Event
from launch.connect.link import Link, Transport
from launch.errors import LaunchError
from launch.record.result import ExitReason, Result
from launch.record.run_folder import RunFolder
from launch.screen.display import Display
from launch.supervise.run_loop import RunLoop, stop_signals
from launch.supervise.supervisor import Action, Note, Start, Supervisor

_REOPEN_SECS = 5.0  # between two attempts to reach a host


def run_with_agents(
    job: Job,
    folder: RunFolder,
    transport: Transport,
    display: Display,
    adapt: Callable[[Job], Job] = lambda job: job,
    containers: Optional[Message] = None,
) -> Result:
    """Runs a job to its end, then ends every agent that can be reached, even after a LaunchError.

    Any other exception is an error of the launcher itself: it only closes the connections, and the
    agents let the tasks save, as after a launcher that was killed.

    Args:
      job: the job to run.
      folder: the run's folder, for status and logs.
      transport: how the launcher reaches the hosts.
      display: shows the job's progress to the user.
      adapt: a function that changes the tasks' commands once every port is known, for backends that
        wrap the commands.
      containers: the arguments of `launch.agent.containers.Containers`; None for tasks that are
        plain processes.

    Raises:
      LaunchError: a variable to pass to the tasks is not set in this process.
      HostError: a host could not be reached at the start, or did not report free ports.
    """
    job = with_token(job)
    allowed = allowed_variables(job.cluster.pass_environment)
    finds_ports = job.cluster.ports == FREE_PORTS

    connections = Connections(job.cluster, folder.run_id, transport, containers)
    with stop_signals() as signals, connections:
        ports = connections.open_all(
            lambda: bool(signals), lambda host: num_ports(host) if finds_ports else 0
        )
        if ports is None:
            return Result(128 + signals[0], "stopped before the start", cause=ExitReason.USER)
        ready = adapt(make_job(job.cluster, job.arguments, ports) if finds_ports else job)
        cluster, now = ready.cluster, time.monotonic()
        supervisor = Supervisor(ready.tasks, cluster.limits, cluster.restarts, now)
        loop = RunLoop(supervisor, folder, display, connections.events, signals)
        variables = {"PYTHONUNBUFFERED": "1", **dict(cluster.environment), **allowed}
        orders: dict[str, Message] = {
            task.name: {
                "do": "start",
                "task": task.name,
                "argv": list(task.argv),
                "script": script_of(cluster),
                "cwd": task.host.workdir,
                "env": {**variables, "TF_CONFIG": task.tf_config},
                "masked": sorted(allowed),
                "gpus": task.devices.gpus,
                "share": task.devices.share,
                "port": task.port,
                "last": task.task_type == "ps",
            }
            for task in ready.tasks
        }
        return loop.supervise(Agents(supervisor, loop, connections, orders))


def allowed_variables(names: Sequence[str]) -> dict[str, str]:
    """Returns the values of variables in this process's environment.

    Raises:
      LaunchError: a variable is not set.
    """
    missing = [name for name in names if name not in os.environ]
    if missing:
        raise LaunchError(
            f"pass_environment: {', '.join(missing)} not set here; export it, or leave it out"
        )
    return {name: os.environ[name] for name in names}


class Agents:
    """Sends the supervisor's decisions to the agents, and reports the agents' messages to it.

    Args:
      supervisor: the object that decides which tasks to start and to signal.
      loop: the run loop, which takes the tasks' lines and notes for the user.
      connections: the connections to the agents.
      orders: task's name -> the order that starts the task.
      clock: returns the time in seconds.
    """

    def __init__(
        self,
        supervisor: Supervisor,
        loop: RunLoop,
        connections: Connections,
        orders: Mapping[str, Message],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._supervisor, self._loop, self._connections = supervisor, loop, connections
        self._orders, self._clock = orders, clock
        self._waiting: dict[str, list[Message]] = {}  # host's name -> starts for the reconnection
        # Host's name -> since when it cannot be reached, and why.
        self._unreachable: dict[str, tuple[float, str]] = {}

    def start(self) -> None:
        """Starts all tasks."""
        self._carry_out(self._supervisor.start())

    def handle(self, event: Event) -> None:
        """Handles an agent's message, or the result of connecting to a host again."""
        try:
            self._handle(event)
        except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
            host, link, message = event
            if link is None or not self._connections.is_current(host, link):
                raise
            self._lose(host, f"lost: its agent sent {str(message)[:200]}: {error!r}")

    def _handle(self, event: Event) -> None:
        host, link, message = event
        what = message["event"]
        if what in ("connected", "unreachable"):
            self._reconnected(host, link, message)
        elif link is None or not self._connections.is_current(host, link):
            return  # from a dropped connection
        elif "task" in message:
            state = self._supervisor.states.get(message["task"])
            if state is None or state.task.host.name != host:
                self._loop.note(f"{host}: ignored a message about a task that it does not run")
            else:
                self._take_from_task(state.task.name, host, message)
        elif what == "lost":
            self._lose(host, f"lost: {link.why()}")
        elif what == "launcher_lost":
            cause = ExitReason.PLATFORM if message["by_platform"] else ExitReason.HOST_LOST
            self._lose(host, f"lost: its agent stopped: {message['reason']}", cause)
        elif what == "note":
            self._loop.note(f"{host}: {message['text']}")
        elif what == "preempted":
            reason, now = f"{host}: {message['reason']}", self._clock()
            self._carry_out(self._supervisor.stop(signal.SIGTERM, now, reason, ExitReason.PLATFORM))

    def stop(self, signum: int) -> None:
        """Stops all tasks in order at the first signal, and kills them at the second one."""
        self._loop.note(f"{signal.Signals(signum).name}: stopping all tasks")
        self._carry_out(self._supervisor.stop(signum, self._clock()))

    def tick(self, now: float) -> None:
        """Carries out what is due, and gives up hosts with silent agents."""
        self._carry_out(self._supervisor.tick(now))
        for name in self._connections.silent(now):
            self._lose(name, f"no message from its agent for {self._connections.lease_secs:g} s")

    def has_lines_to_come(self) -> bool:
        """Returns False: an agent sends a task's last lines before it reports the task's end."""
        return False

    def _take_from_task(self, name: str, host: str, message: Message) -> None:
        event, now = message["event"], self._clock()
        if event == "lines":
            lines = list(map(str, message["lines"]))
            if dropped := int(message["dropped"]):
                lines.insert(0, f"[{dropped:,} lines left out: the launcher was too slow]")
            self._loop.take_lines(name, host, lines)
        elif event == "started":
            self._supervisor.started(name)
        elif event == "exit":
            # What is of another type fails here, before the supervisor has taken it.
            code = None if message["code"] is None else int(message["code"])
            reason, signals = str(message["reason"]), [int(signum) for signum in message["signals"]]
            self._carry_out(self._supervisor.ended(name, code, now, reason, signals=signals))

    def _lose(self, host: str, reason: str, cause: ExitReason = ExitReason.HOST_LOST) -> None:
        """Drops a host's connection, and records its tasks as ended: the agent will end them."""
        self._connections.drop(host)
        for name, state in self._supervisor.states.items():
            if state.task.host.name == host:
                now = self._clock()
                self._carry_out(self._supervisor.ended(name, None, now, reason, cause))

    def _reconnected(self, host: str, link: Optional[Link], message: Message) -> None:
        now, waiting, reason = self._clock(), self._waiting[host], message.get("reason", "")
        if link is not None:
            self._connections.use(host, link)
        else:
            since, _ = self._unreachable.get(host, (now, reason))
            if waiting and now < since + self._connections.rejoin_secs:
                if host not in self._unreachable:
                    again = f"tried again for {self._connections.rejoin_secs:g} s (rejoin_secs)"
                    self._loop.note(f"{reason}; {again}")
                self._unreachable[host] = since, reason
                self._supervisor.heard(now, stepped=False)  # This wait has a limit of its own.
                self._connections.reopen(host, _REOPEN_SECS)
                return
        while waiting:  # the end of the job withdraws the rest
            order = waiting.pop(0)
            if not self._connections.send(host, order):
                self._give_up(order, reason)
        del self._waiting[host]
        self._unreachable.pop(host, None)

    def _give_up(self, order: Message, reason: str) -> None:
        """Records that a task cannot be started, since its host cannot be reached."""
        lost = (order["task"], None, self._clock(), reason, ExitReason.HOST_LOST)
        self._carry_out(self._supervisor.ended(*lost, is_final=True))

    def _carry_out(self, actions: Sequence[Action]) -> None:
        for action in actions:
            if isinstance(action, Note):
                self._loop.note(action.text)
                continue
            host = self._supervisor.states[action.task].task.host.name
            if isinstance(action, Start):
                order = self._orders[action.task]
            else:
                order = {"do": "signal", "task": action.task, "signal": int(action.signum)}
            if not self._connections.send(host, order) and isinstance(action, Start):
                if host not in self._waiting:
                    self._connections.reopen(host)
                self._waiting.setdefault(host, []).append(order)
        expected = self._supervisor.expected
        has_failed = expected is not None and expected.cause is ExitReason.TASK_FAILED
        for host, orders in self._waiting.items() if self._supervisor.ending else ():
            while orders:  # nothing is started any more
                order = orders.pop()
                if has_failed and host in self._unreachable:
                    # The others have failed without it: its host is the cause.
                    self._give_up(order, self._unreachable[host][1])
                else:
                    self._carry_out(self._supervisor.withdrawn(order["task"], self._clock()))
