"""Simulated hosts: the tasks that run there, and the machine that a real agent sees."""

import signal
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Optional

from launch.agent.main import Agent
from launch.agent.protocol import Message, encode, read_event
from tests.simulation.world import World

if TYPE_CHECKING:
    from tests.simulation.links import SimLink
    from tests.simulation.programs import Program

_TICK_SECS = 0.5


class Process:
    """A task's process; `launch.agent.task_process.TaskProcess` for the agent.

    Attributes:
      got: the signals that reached the process before its end.
      code: how it ended, -n for signal n; None before.
      ended_at: when it ended; None before, and if its host crashed.
    """

    def __init__(self, host: "SimHost", machine: "SimMachine", order: Message, pid: int) -> None:
        self.name: str = order["task"]
        self.last: bool = order["last"]
        self.pid = pid
        self.port: Optional[int] = None
        self.signals: list[int] = []
        self.got: list[tuple[int, float]] = []
        self.code: Optional[int] = None
        self.ended_at: Optional[float] = None
        self.host, self.machine = host, machine
        self.program: Optional[Program] = None

    def send(self, signum: int) -> None:
        """Takes a signal of the agent."""
        self.signals.append(int(signum))
        self.deliver(signum, "its agent")

    def deliver(self, signum: int, sender: str) -> None:
        """Takes a signal of anybody."""
        if self.code is not None:
            return
        self.host.world.say(self.host.name, self.name, "gets", signal.Signals(signum).name, sender)
        self.host.on_signal(self, signum, sender)
        self.got.append((int(signum), self.host.world.now))
        if signum == signal.SIGKILL:
            self.end(-9)
        elif self.program is not None:
            self.program.take(signum)

    def end(self, code: int) -> None:
        """Ends, and makes the kernel tell the agent."""
        if self.code is None:
            self.code, self.ended_at = code, self.host.world.now
            self.host.world.say(self.host.name, self.name, "ends", code)
            self.host.later(0.0, self.machine.turn)

    def write(self, line: str) -> None:
        """Writes a line, which the agent sends at once."""
        if not self.machine.is_over:
            lines = {"event": "lines", "task": self.name, "lines": [line], "dropped": 0}
            self.machine.send(lines, droppable=True)

    def poll(self) -> Optional[int]:
        """Returns the exit code, once the kernel has told the agent."""
        return self.code

    def kill_group(self) -> None:
        """Does nothing: a simulated process has no children."""

    def finish(self) -> None:
        """Does nothing: all lines are sent already."""


class SimHost:
    """A host.

    Args:
      world: the world that it is in.
      name: its name.
      is_slurm: whether agents are steps of Slurm.
      program: makes the program of a task's process.
    """

    def __init__(
        self, world: World, name: str, is_slurm: bool, program: "Callable[[Process], Program]"
    ) -> None:
        self.world, self.name, self.is_slurm = world, name, is_slurm
        self.make_program = program
        self.is_down = False
        self.frozen_until = self.cut_off_until = 0.0
        self.clock_offset = world.rng.uniform(0, 1e5)  # monotonic clocks begin with the machine
        self.machines: list[SimMachine] = []
        self.processes: list[Process] = []
        self.refuses_starts = False
        self.on_signal: Callable[[Process, int, str], None] = lambda *_: None
        self.on_told: Callable[[Process], None] = lambda _: None  # its agent tells of its end

    def later(self, secs: float, do: Callable[..., object], *arguments: Any) -> None:
        """Makes something happen on this host: not while it hangs, and never once it is down."""

        def happen() -> None:
            if self.is_down:
                return
            if self.world.now < self.frozen_until:
                self.world.later(self.frozen_until - self.world.now, happen)
            else:
                do(*arguments)

        self.world.later(secs, happen)

    def agent(self, link: "SimLink") -> "SimMachine":
        """Starts an agent for a connection."""
        machine = SimMachine(self, link)
        self.machines.append(machine)
        machine.begin()
        return machine

    def crash(self) -> None:
        """Loses its power: nobody says anything any more."""
        self.world.say(self.name, "loses its power")
        self.is_down = True
        for process in self.processes:
            process.code = -9 if process.code is None else process.code


class SimMachine:
    """A host as one agent sees it, with the agent; see `launch.agent.main.Machine`."""

    def __init__(self, host: SimHost, link: "SimLink") -> None:
        self.host, self.link, self.is_slurm_step = host, link, host.is_slurm
        self.is_over = False
        self._labels: dict[int, dict[str, str]] = {}
        machine: Any = self
        self.agent = Agent("run", machine)

    def begin(self) -> None:
        """Starts the agent."""
        self.host.later(_TICK_SECS, self._tick)

    def _tick(self) -> None:
        if not self.is_over:
            self.turn()
            self.host.later(_TICK_SECS, self._tick)

    def turn(self) -> None:
        """Lets the agent do what is due."""
        if self.is_over:
            return
        if not self.agent.turn():
            self.kill("its agent has ended")

    def kill(self, why: str = "its agent is killed") -> None:
        """Ends the agent, which ends its tasks: by the kernel and by the guard."""
        if self.is_over:
            return
        self.is_over = True
        self.host.world.say(self.host.name, why)
        for process in self.host.processes:
            if process.machine is self:
                process.deliver(signal.SIGKILL, "the kernel")
        self.link.agent_has_ended()

    def sigterm(self) -> None:
        """Takes a SIGTERM of the platform."""
        if not self.is_over:
            self.host.world.say(self.host.name, "its agent gets SIGTERM")
            self.agent.asked_to_end()
            self.turn()

    def hear(self, order: Optional[Message]) -> None:
        """Takes an order, or the end of the connection."""
        if self.is_over:
            return
        if order is None:
            self.agent.lose_launcher("the launcher has ended")
        else:
            self.agent.hear(order)
        self.turn()

    # What follows is `Machine` for the agent.

    def send(self, message: Message, *, droppable: bool = False) -> bool:
        """Sends a message to the launcher, which reads it as from a real connection."""
        event = read_event(encode(message))
        assert event is not None, message
        if message["event"] == "exit" and message["code"] is not None:
            told = (message["task"], message["code"], self)
            ended = [p for p in self.host.processes if (p.name, p.code, p.machine) == told]
            self.host.on_told(ended[-1])
        self.link.send_up(event)
        return True

    def now(self) -> float:
        """Returns the time by the host's clock."""
        return self.host.world.now + self.host.clock_offset

    def spawn(self, order: Message) -> Process:
        """Starts a task."""
        if self.host.refuses_starts:
            raise OSError("port 2222 is in use")
        pid = 100 + len(self.host.processes)
        process = Process(self.host, self, order, pid)
        self._labels[pid] = dict(order["env"])
        self.host.processes.append(process)
        self.host.world.say(self.host.name, process.name, "starts")
        process.program = self.host.make_program(process)
        return process

    def end_labelled(self, patience_secs: float, **labels: str) -> list[int]:
        """Kills the processes with these labels, at once."""
        found = []
        for process in self.host.processes:
            theirs = process.machine._labels[process.pid]
            if process.code is None and all(theirs.get(n) == v for n, v in labels.items()):
                is_own = process.machine is self
                process.deliver(signal.SIGKILL, "the end of its agent" if is_own else "a successor")
                found.append(process.pid)
        return found

    def guard(self, work: Callable[[], object]) -> Callable[[], None]:
        """Returns what dismisses the guard; `kill` is the guard's work."""
        return lambda: None
