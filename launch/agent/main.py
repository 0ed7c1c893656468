"""The agent's main loop: executes orders, reports output and exit codes, and ends the tasks."""

import math
import os
import signal
import socket
from collections.abc import Callable, Sequence
from typing import Any, Optional

from launch.agent import free_ports, host_facts, old_logs, processes, sockets
from launch.agent.containers import Containers
from launch.agent.machine import Machine
from launch.agent.messages import read_order, shown
from launch.agent.protocol import MAGIC, Incoming, Message, Outgoing
from launch.agent.task_process import Running, portions

_TICK_SECS = 0.5
_STRAGGLER_SECS = 0.5  # how long processes that a task left behind have to end
_LAST_WORDS_SECS = 2.0  # to collect killed tasks and to send the last messages
_ORPHAN_SECS = 15.0  # maximum time for tasks to save after the launcher is lost
_SETTLE_SECS = 1.5  # until a container appears whose client was killed while creating it


class Agent:
    """Runs tasks for one launcher, over standard input and output.

    Args:
      run_id: the id of the run, with which the agent marks every process that it starts.
      machine: carries out what the agent decides.
      incoming: the orders of the launcher.
      outgoing: the messages to the launcher.
    """

    def __init__(
        self,
        run_id: str,
        machine: Optional[Machine] = None,
        incoming: Optional[Incoming] = None,
        outgoing: Optional[Outgoing] = None,
    ) -> None:
        self._run_id = run_id
        self._machine = machine or Machine()
        self._host = ""
        self._tasks: dict[str, Running] = {}
        self._incoming = incoming or Incoming(0)
        self._outgoing = outgoing or Outgoing(1, MAGIC)
        self._heard = self._machine.now()
        self._lease_secs: Optional[float] = None
        self._orphan_secs = _ORPHAN_SECS
        self._alone = False
        self._orphaned: Optional[float] = None
        self._asked = -math.inf  # when it last asked a task to end that ends after the others
        self._send_guard_home: Optional[Callable[[], None]] = None
        self._containers: Optional[Containers] = None
        self._is_successor = False
        self._settled_at = 0.0
        self._held_ports: list[socket.socket] = []
        self._over_at: Optional[float] = None
        self._orders: dict[str, Callable[[Message], None]] = {
            "setup": self._setup,
            "start": self._start,
            "signal": self._signal,
            "beat": lambda _: self._say("beat"),
            "ports": self._find_ports,
            "sweep": self._sweep,
            "look": lambda order: self._say("looked", **host_facts.look(order)),
            "listen": self._listen,
            "dial": lambda order: self._say("dialled", failures=host_facts.dial(order["targets"])),
            "end": self._end,
        }

    def run(self) -> None:
        """Runs until the launcher ends the agent, or is lost and all tasks have ended."""
        processes.adopt_orphans()
        os.set_blocking(0, False)
        self.begin()
        while self.has_work():
            self._machine.wait(0.05 if self._outgoing.waiting else _TICK_SECS)
            self.turn()
        if self._send_guard_home is not None:
            self._send_guard_home()

    def begin(self) -> None:
        """Begins to listen, and greets the launcher."""
        self._machine.watch_signals(self._asked_to_end)
        self._machine.watch(0, self._hear)
        self._say("hello")

    def turn(self) -> None:
        """Does what is due after something has been read or some time has passed."""
        self._reap()
        self._outgoing.flush()
        self._look_at_the_clock()

    def has_work(self) -> bool:
        """Returns whether the main loop must continue.

        After `_end`, it continues until all tasks are reaped and all messages are sent, but at most
        for `_LAST_WORDS_SECS`.
        """
        if self._over_at is None:
            return True
        left = self._over_at + _LAST_WORDS_SECS - self._machine.now()
        return left > 0 and (bool(self._tasks) or self._outgoing.waiting)

    def _asked_to_end(self) -> None:
        """Handles SIGTERM: under Slurm, tells the launcher; otherwise ends this host's tasks."""
        reason = "the agent got SIGTERM"
        if self._machine.is_slurm_step:
            self._say("told", reason=reason)
        else:
            self._orphan(reason, by_platform=True)

    def _say(self, event: str, **content: Any) -> None:
        """Sends a message, whose texts may come from programs and be longer than any message."""
        self._outgoing.put({"event": event, **{name: shown(one) for name, one in content.items()}})

    def _hear(self) -> None:
        try:
            lines = self._incoming.read()
        except EOFError:
            self._stop_hearing("the launcher has ended")
            return
        except ValueError as error:
            self._stop_hearing(f"the launcher sent no order: {error}")
            return
        for line in lines:
            order = read_order(line)
            if order is None:
                self._stop_hearing(f"the launcher sent no order: {line[:60]!r}")
                return
            self._heard = self._machine.now()
            if self._orphaned is None or order["do"] == "end":
                self._orders[order["do"]](order)

    def _stop_hearing(self, reason: str) -> None:
        self._machine.unwatch(0)
        self._orphan(reason)

    def _setup(self, order: Message) -> None:
        self._host = order["mark"]
        self._lease_secs = order["lease_secs"]
        self._orphan_secs = min(_ORPHAN_SECS, order["stop_secs"])
        self._alone = order["alone"]
        self._is_successor = order["successor"]
        if order["containers"] is not None:
            self._containers = Containers(**order["containers"])
        self._send_guard_home = self._machine.guard(
            self._run_id, self._host, lambda: self._remove_containers(_SETTLE_SECS)
        )
        if order["logs"] is not None:
            old_logs.forget(order["logs"])

    def _find_ports(self, order: Message) -> None:
        """Chooses other ports than before, and holds them until this process ends."""
        before = self._held_ports
        self._held_ports = free_ports.hold(order["count"])
        for held in before:
            held.close()
        self._say("ports", ports=[held.getsockname()[1] for held in self._held_ports])

    def _start(self, order: Message) -> None:
        """Starts a task, after ending any processes of it that an earlier agent left behind."""
        marks = {processes.RUN: self._run_id, processes.TASK: order["task"]}
        self._machine.end_marked(0, **marks)
        try:
            if self._containers is not None and self._is_successor:
                self._containers.remove(0, **marks)
            if self._is_successor and order["port"] is not None:
                self._held_ports = free_ports.hold_with(order["port"], self._held_ports)
            marks[processes.HOST] = self._host
            order["env"].update(marks)
            if self._containers is not None:
                order = self._containers.prepare(order, marks)
            task = self._machine.spawn(order)
        except OSError as error:
            taken = isinstance(error, sockets.PortTaken)
            self._say_end(order["task"], None, str(error), port_taken=taken)
            return
        earlier = self._tasks.get(task.name)
        if earlier is not None:  # it outlived SIGKILL; nobody reads its output any more
            self._machine.unwatch(earlier.fd)
        self._tasks[task.name] = task
        self._machine.watch(task.fd, lambda: self._read(task))
        self._say("started", task=task.name)
        self._forward(task, [])

    def _read(self, task: Running) -> None:
        if self._tasks.get(task.name) is not task:  # its end was seen a moment ago
            return
        lines = task.read()
        if lines is None:  # the task has closed its output, but may still run
            self._machine.unwatch(task.fd)
            return
        self._forward(task, lines)

    def _forward(self, task: Running, lines: list[str]) -> None:
        """Sends a task's output to the launcher, and a note if the task's log has failed."""
        error = task.log.new_error()
        if error is not None:
            self._say("note", text=f"{task.name}: {error}, but the job goes on")
        for some in portions(lines):
            message = {"event": "lines", "task": task.name, "lines": some, "dropped": task.dropped}
            if self._outgoing.put(message, droppable=True):
                task.dropped = 0
            else:
                task.dropped += len(some)

    def _signal(self, order: Message) -> None:
        self._reap()  # a task that has ended by now did not end by this signal
        if order["task"] in self._tasks:
            self._tasks[order["task"]].send(order["signal"])

    def _sweep(self, order: Message) -> None:
        """Ends the remaining processes and containers of a run on this host, including agents."""
        run = order["run"]
        pids = processes.end_all(
            lambda: processes.agents(run) + processes.marked(**{processes.RUN: run}),
            order["patience_secs"],
        )
        ids: list[str] = []
        error = None
        if order["engine"] is not None:
            try:
                ids = Containers(order["engine"]).remove(0, **{processes.RUN: run})
            except OSError as why:
                error = str(why)
        self._say("swept", pids=pids, containers=ids, error=error)

    def _end(self, _: Message) -> None:
        for task in self._tasks.values():
            task.send(signal.SIGKILL)
            self._settled_at = self._machine.now() + _SETTLE_SECS
        self._machine.end_marked(0, **self._own_marks())
        settle_secs = max(0.0, self._settled_at - self._machine.now())
        self._remove_containers(settle_secs)
        self._over_at = self._machine.now()

    def _remove_containers(self, settle_secs: float, task: Optional[str] = None) -> None:
        """Removes the containers of one task or of all; sends the launcher a note on failure."""
        marks = self._own_marks() | ({} if task is None else {processes.TASK: task})
        if self._containers is not None:
            try:
                self._containers.remove(settle_secs, **marks)
            except OSError as error:
                self._say("note", text=f"{error}; see `clean`")

    def _own_marks(self) -> dict[str, str]:
        """Returns the marks of all that this agent has started, and no other agent of the run."""
        return {processes.RUN: self._run_id, processes.HOST: self._host}

    def _listen(self, order: Message) -> None:
        self._listening = host_facts.answer(order["ports"], order["token"])
        self._say("listening")

    def _reap(self) -> None:
        """Reports the tasks that have ended, and reaps orphaned processes."""
        for pid, code in self._machine.ended_children():
            task = next((task for task in self._tasks.values() if task.pid == pid), None)
            if task is not None:
                self._report_end(task, code)

    def _report_end(self, task: Running, code: int) -> None:
        self._machine.unwatch(task.fd)
        self._forward(task, task.finish(code))
        del self._tasks[task.name]
        patience = 0 if code == -signal.SIGKILL else _STRAGGLER_SECS
        # With HOST: a successor may have started the same task here.
        marks = self._own_marks() | {processes.TASK: task.name}
        left = self._machine.end_marked(patience, **marks)
        reason = ""
        if self._containers is not None:
            reason = self._containers.reason(code)
            if code < 0:  # the client was killed; its container may still run
                left = []
                self._settled_at = self._machine.now() + _SETTLE_SECS
                self._remove_containers(0, task.name)
        # A task that could not listen ends by itself, and then another process has its port.
        taken = code > 0 and task.port is not None and self._machine.is_port_taken(task.port)
        self._say_end(task.name, code, reason, len(left), task.signals, port_taken=taken)

    def _say_end(
        self,
        task: str,
        code: Optional[int],
        reason: str,
        stragglers: int = 0,
        signals: Sequence[int] = (),
        *,
        port_taken: bool = False,
    ) -> None:
        """Tells the launcher that a task has ended, and which signals it had got before."""
        found: Message = {"code": code, "reason": reason, "stragglers": stragglers}
        self._say("exit", task=task, **found, signals=list(signals), port_taken=port_taken)

    def _orphan(self, reason: str, *, by_platform: bool = False) -> None:
        """Starts to end the tasks without the launcher: trainers first, which save; the ps last."""
        if self._orphaned is None and self._over_at is None:
            self._orphaned = self._machine.now()
            # The launcher may read this once the connection recovers.
            self._say("orphaned", reason=reason, by_platform=by_platform)
            for task in self._tasks.values():
                if not task.last:
                    task.send(signal.SIGTERM)

    def _look_at_the_clock(self) -> None:
        now = self._machine.now()
        if self._lease_secs is not None and now - self._heard > self._lease_secs:
            self._orphan(f"no message from the launcher for {self._lease_secs:g} s")
        if self._orphaned is None or self._over_at is not None:
            return
        left = self._orphaned + self._orphan_secs - now
        saved = self._alone and all(task.last for task in self._tasks.values())
        for task in self._tasks.values():
            if left < 0 and not task.last:
                task.send(signal.SIGKILL)
            # With several hosts, the ps stay for trainers elsewhere that may still be saving.
            elif task.last and (left < 0 or saved) and not task.asked_to_end:
                task.asked_to_end = True
                self._asked = now
                task.send(signal.SIGTERM)
        # The second condition counts if this process stood still in between, as its machine may.
        if not self._tasks or (left < -_LAST_WORDS_SECS and now > self._asked + _LAST_WORDS_SECS):
            self._end({})
