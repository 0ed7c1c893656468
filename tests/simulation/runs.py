"""One run of a job under agents: the real supervisor and agents in a simulated world."""

import signal
from types import SimpleNamespace
from typing import Any, Optional

from launch.agent.protocol import Message
from launch.cluster.model import Host, Limits
from launch.cluster.tasks import Devices, Task
from launch.record.result import ExitReason
from launch.supervise.run import Agents
from launch.supervise.supervisor import Action, Supervisor
from tests.simulation import invariants
from tests.simulation.faults import draw_faults
from tests.simulation.hosts import SimHost
from tests.simulation.invariants import Ledger, Report
from tests.simulation.links import SimConnections, SimLink, SimTransport
from tests.simulation.programs import Training
from tests.simulation.world import World

_TICK_SECS = 0.5
_LONGEST_SECS = 400.0
_LOST_SECS = 15.0


class WatchedSupervisor(Supervisor):
    """The real supervisor, whose decisions are written into a ledger."""

    ledger: Ledger
    truth: Optional[bool] = None  # whether the task whose end is told of now ended by itself

    def ended(self, name: str, code: Optional[int], now: float, *rest: Any, **more: Any) -> Any:
        """Records what the end of a task says about the end of the job."""
        state, truth = self.states[name], self.truth is not False
        was_alive = state.alive
        actions = super().ended(name, code, now, *rest, **more)
        if not was_alive:
            return actions
        ledger = self.ledger
        if code == 0 and state.task.is_chief and truth:
            ledger.reports.append(Report(now, invariants.DONE, 0, name))
        elif code != 0 and truth:
            ledger.failed.add(name)
            if state.status != "restarting":
                ledger.reports.append(self._failure(state.cause, code, name, now))
        self._note_end()
        return actions

    def _failure(self, cause: ExitReason, code: Optional[int], name: str, now: float) -> Report:
        report = invariants.failure(now, code, name)
        ranks = {
            ExitReason.HOST_LOST: invariants.HOST_LOST,
            ExitReason.PLATFORM: invariants.PLATFORM,
        }
        return Report(now, ranks.get(cause, report.rank), report.exit_code, name)

    def stop(
        self, signum: int, now: float, reason: str = "", cause: ExitReason = ExitReason.USER
    ) -> list[Action]:
        """Records a request for the end."""
        ledger = self.ledger
        rank = invariants.PLATFORM
        if cause is ExitReason.USER:
            ledger.num_user_stops += 1
            rank = invariants.TERMINATED if signum == signal.SIGTERM else invariants.USER
        ledger.reports.append(Report(now, rank, 128 + signum))
        actions = super().stop(signum, now, reason, cause)
        self._note_end()
        return actions

    def tick(self, now: float) -> list[Action]:
        """Records a time limit."""
        is_first = self.expected is None
        actions = super().tick(now)
        if is_first and self.expected is not None and self.expected.exit_code == 124:
            self.ledger.reports.append(Report(now, invariants.USER, 124))
        self._note_end()
        return actions

    def _note_end(self) -> None:
        ledger, now = self.ledger, self.ledger.world.now
        if self.ending and ledger.end_began is None:
            ledger.end_began = now
        if self.expected is not None and not self.expected.exit_code and ledger.succeeded is None:
            ledger.succeeded = now


class AgentRun:
    """One run of a job with an agent on each host."""

    def __init__(self, seed: int, *, traces: bool = False) -> None:
        self.world = world = World(seed, traces=traces)
        rng = world.rng
        self.is_slurm = rng.random() < 0.4
        self.training = Training(world)
        limits = {"start_secs": 20, "idle_secs": 15, "grace_secs": 3, "lease_secs": 6}
        self.limits = Limits(**limits, stop_secs=rng.choice((2, 8)), rejoin_secs=10)
        names = [f"n{i}" for i in range(rng.choice((1, 2, 2, 3)))]
        self.hosts = {
            name: SimHost(world, name, self.is_slurm, self.training.program) for name in names
        }
        self.ledger = Ledger(world, self.limits)
        for host in self.hosts.values():
            host.on_signal, host.on_told = self.ledger.signalled, self.ledger.told
        tasks = self._tasks(names)
        self.supervisor = WatchedSupervisor(tasks, self.limits, rng.choice((0, 0, 0, 1, 2)), 0.0)
        self.supervisor.ledger = self.ledger
        cluster: Any = SimpleNamespace(
            hosts=[task.host for task in {task.host.name: task for task in tasks}.values()],
            limits=self.limits,
        )
        transport: Any = SimTransport(self.hosts)
        self.connections = SimConnections(cluster, "run", transport)
        self.connections.put = self._arrive  # type: ignore[method-assign]
        self.connections.world = world
        orders = {task.name: _order(task) for task in tasks}
        loop: Any = self
        clock = lambda: self.world.now  # noqa: E731
        self.agents = Agents(self.supervisor, loop, self.connections, orders, clock)
        self._queue: list[Any] = []
        self.paused_until = 0.0
        self.is_dead = False
        self._stops: list[int] = []
        self._num_heeded = 0
        self._watch_orders()
        draw_faults(self)

    def _tasks(self, names: list[str]) -> list[Task]:
        rng = self.world.rng
        types = [rng.choice(("master", "chief")), *["worker"] * rng.randint(0, 3)]
        types += ["ps"] * rng.randint(1, 2) + ["evaluator"] * rng.choice((0, 0, 1))
        tasks, counts = [], dict.fromkeys(types, 0)
        for i, task_type in enumerate(types):
            name = names[i % len(names)]
            host = Host(name, name, (), workdir="/data")
            tasks.append(Task(task_type, counts[task_type], host, None, Devices(), "{}", ()))
            counts[task_type] += 1
        return tasks

    def _watch_orders(self) -> None:
        """Makes the ledger check each order that leaves the launcher."""
        send, ledger = self.connections.send, self.ledger

        def watched(host_name: str, message: Message) -> bool:
            is_sent = send(host_name, message)
            if is_sent and message["do"] == "start":
                self.world.say("launcher: start", message["task"])
                ledger.sent_start(message["task"])
            elif message["do"] == "signal":
                self.world.say("launcher: signal", message["task"], message["signal"])
                ledger.sent_signal(message["task"], message["signal"])
            return is_sent

        self.connections.send = watched  # type: ignore[method-assign]

    # What follows is `RunLoop` for the agents.

    def note(self, *texts: str) -> None:
        """Takes notes for the user."""
        for text in texts:
            self.world.say("note:", text)
            self.ledger.notes.append(text)

    def take_lines(self, task: str, host: str, lines: Any) -> None:
        """Takes the lines of a task."""
        self.supervisor.heard(self.world.now, stepped=True)

    def _arrive(self, event: Any) -> None:
        self._queue.append(event)
        self._work()

    def signal(self, signum: int) -> None:
        """Takes a signal for the launcher."""
        self.world.say("launcher gets", signal.Signals(signum).name)
        self._stops.append(signum)

    def _work(self) -> None:
        """Does what the launcher's loop does, unless it stands still."""
        if self.world.now < self.paused_until or self.is_over or self.is_dead:
            return
        while self._queue and not self.is_over:
            self._handle(self._queue.pop(0))
        for signum in self._stops[self._num_heeded :]:
            self._num_heeded += 1
            if not self.is_over:
                self.agents.stop(signum)
        if not self.is_over:
            self.agents.tick(self.world.now)

    def _handle(self, event: Any) -> None:
        host, link, message = event
        if message["event"] == "exit":
            self.supervisor.truth = self._ended_by_itself(host, message["task"], message["code"])
        if message["event"] not in ("lines", "beat"):
            self.world.say("launcher hears", host, message)
        self.agents.handle(event)
        self.supervisor.truth = None

    def _ended_by_itself(self, host: str, task: str, code: Optional[int]) -> bool:
        """Returns what really happened to the newest process of a task that has ended."""
        ended = [p for p in self.hosts[host].processes if p.name == task and p.code == code]
        if code is None or not ended:
            return True
        got = [signum for signum, _ in ended[-1].got]
        signum = -code if code < 0 else code - 128
        return not got or (signum > 0 and signum not in got)

    @property
    def is_over(self) -> bool:
        """Whether the launcher knows the result."""
        return self.supervisor.result is not None

    def _tick(self) -> None:
        self._work()
        self.world.later(_TICK_SECS, self._tick)

    def run(self) -> Ledger:
        """Runs the job to its end, and what is left of it; returns what was wrong."""
        self.connections.open_here()
        self.agents.start()
        self.world.later(_TICK_SECS, self._tick)
        self.world.run(_LONGEST_SECS, lambda: self.is_over or self.is_dead)
        result = self.supervisor.result
        self.world.say("result:", result)
        if not self.is_dead:
            named = {n for n, state in self.supervisor.states.items() if state.status == "failed"}
            self.ledger.check_outcome(result, named, self._limit_secs())
            self.connections.finish()
        self._check_that_nothing_is_left()
        return self.ledger

    def _limit_secs(self) -> float:
        limits, kill = self.limits, invariants.KILL_SECS
        before_a_success = invariants.SETTLE_SECS
        in_order = 2 * (limits.stop_secs + kill) + min(limits.stop_secs, kill) + kill
        after = limits.grace_secs + limits.stop_secs + 3 * kill
        return before_a_success + max(in_order, after) + 2 * kill + 2 * _TICK_SECS

    def _check_that_nothing_is_left(self) -> None:
        """Lets the agents end without the launcher, and checks that they do."""
        patience = self.limits.lease_secs + min(_LOST_SECS, self.limits.stop_secs) + 8
        until = self.world.now + patience
        while self.world.now < until and not self._is_empty():  # more may go wrong meanwhile
            self.world.run(self.world.now + 1, self._is_empty)
            for host in self.hosts.values():
                until = max(until, host.frozen_until + patience, host.cut_off_until + patience)
        if not self._is_empty():
            left = [p.name for h in self.hosts.values() for p in h.processes if p.code is None]
            self.ledger.breach("no task is left after the end", ", ".join(left))

    def _is_empty(self) -> bool:
        return all(p.code is not None for h in self.hosts.values() for p in h.processes)

    def link_of(self, host: str) -> Optional[SimLink]:
        """Returns the current connection to a host."""
        return self.connections.current(host)


def _order(task: Task) -> Message:
    order = {"do": "start", "task": task.name, "env": {}, "last": task.task_type == "ps"}
    order |= {"argv": ["train"], "cwd": "/", "masked": [], "gpus": None}
    return {**order, "share": None, "port": None}
