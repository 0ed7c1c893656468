"""The agent's main loop: executes orders, answers the launcher, and ends without it."""

import math
import os
import signal
from collections.abc import Callable
from typing import Any, Optional

from launch.agent import host_facts, processes
from launch.agent.containers import Containers
from launch.agent.logs import forget
from launch.agent.machine import Machine
from launch.agent.protocol import MAGIC, Incoming, Message, Outgoing, read_order, shown
from launch.agent.tasks import Tasks

_TICK_SECS = 0.5
_LAST_WORDS_SECS = 2.0  # to collect killed tasks and to send the last messages
_ORPHAN_SECS = 15.0  # maximum time for tasks to save after the launcher is lost


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
        self._incoming = incoming or Incoming(0)
        self._outgoing = outgoing or Outgoing(1, MAGIC)
        self._tasks = Tasks(run_id, self._machine, self._outgoing, self._say)
        self._heard = self._machine.now()
        self._lease_secs: Optional[float] = None
        self._orphan_secs = _ORPHAN_SECS
        self._alone = False
        self._orphaned: Optional[float] = None
        self._asked = -math.inf  # when it last asked a task to end that ends after the others
        self._send_guard_home: Optional[Callable[[], None]] = None
        self._is_ending = False
        self._over_at: Optional[float] = None
        self._orders: dict[str, Callable[[Message], None]] = {
            "setup": self._setup,
            "start": self._tasks.start,
            "signal": lambda order: self._tasks.signal(order["task"], order["signal"]),
            "beat": lambda _: self._say("beat"),
            "ports": lambda order: self._say("ports", ports=self._tasks.find_ports(order["count"])),
            "sweep": self._sweep,
            "look": lambda order: self._say("looked", **host_facts.look(order)),
            "listen": self._listen,
            "dial": lambda order: self._say("dialled", failures=host_facts.dial(order["targets"])),
            "end": lambda _: self._end(),
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
        self._tasks.turn()
        self._outgoing.flush()
        self._look_at_the_clock()

    def has_work(self) -> bool:
        """Returns whether the main loop must continue.

        After `_end`, it continues until all tasks are reaped, all logs are written and all messages
        are sent, but at most for `_LAST_WORDS_SECS`.
        """
        if self._over_at is None:
            return True
        left = self._over_at + _LAST_WORDS_SECS - self._machine.now()
        has_to_wait = self._tasks.running or self._tasks.logs.has_unwritten
        return left > 0 and (bool(has_to_wait) or self._outgoing.waiting)

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
        self._tasks.setup(order)
        self._lease_secs = order["lease_secs"]
        self._orphan_secs = min(_ORPHAN_SECS, order["stop_secs"])
        self._alone = order["alone"]
        self._send_guard_home = self._machine.guard(
            self._run_id, order["mark"], self._tasks.remove_containers
        )
        if order["logs"] is not None:
            forget(order["logs"])

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
                ids = Containers(order["engine"]).remove(0, **{processes.RUN: run}).ids
            except OSError as why:
                error = str(why)
        self._say("swept", pids=pids, containers=ids, error=error)

    def _end(self) -> None:
        """Kills all tasks; then the main loop ends."""
        if self._is_ending:
            return
        self._is_ending = True

        def note_the_end() -> None:
            self._over_at = self._machine.now()

        self._tasks.end(note_the_end)

    def _listen(self, order: Message) -> None:
        self._listening = host_facts.answer(order["ports"], order["token"])
        self._say("listening")

    def _orphan(self, reason: str, *, by_platform: bool = False) -> None:
        """Starts to end the tasks without the launcher: trainers first, which save; the ps last."""
        if self._orphaned is None and not self._is_ending:
            self._orphaned = self._machine.now()
            # The launcher may read this once the connection recovers.
            self._say("orphaned", reason=reason, by_platform=by_platform)
            self._tasks.withdraw_starts()
            for task in self._tasks.running:
                if not task.last:
                    task.send(signal.SIGTERM)

    def _look_at_the_clock(self) -> None:
        now = self._machine.now()
        if self._lease_secs is not None and now - self._heard > self._lease_secs:
            self._orphan(f"no message from the launcher for {self._lease_secs:g} s")
        if self._orphaned is None or self._is_ending:
            return
        left = self._orphaned + self._orphan_secs - now
        saved = self._alone and all(task.last for task in self._tasks.running)
        for task in self._tasks.running:
            if left < 0 and not task.last:
                task.send(signal.SIGKILL)
            # With several hosts, the ps stay for trainers elsewhere that may still be saving.
            elif task.last and (left < 0 or saved) and not task.asked_to_end:
                task.asked_to_end = True
                self._asked = now
                task.send(signal.SIGTERM)
        # It counts as late only after a moment if this process stood still, as its machine may.
        is_late = left < -_LAST_WORDS_SECS and now > self._asked + _LAST_WORDS_SECS
        if is_late or not self._tasks.running:
            self._end()
