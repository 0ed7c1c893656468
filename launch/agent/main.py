"""The agent's main loop: executes orders, reports output and exit codes, and ends the tasks."""

import contextlib
import os
import selectors
import signal
import socket
import time
from collections.abc import Callable
from typing import Any, Optional

from launch.agent import free_ports, host_facts, old_logs, processes, sockets
from launch.agent.containers import Containers
from launch.agent.messages import read_order
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
    """

    def __init__(self, run_id: str) -> None:
        self._run_id = run_id
        self._host = ""
        self._tasks: dict[str, Running] = {}
        self._incoming = Incoming(0)
        self._outgoing = Outgoing(1, MAGIC)
        self._selector = selectors.DefaultSelector()
        self._heard = time.monotonic()
        self._lease_secs: Optional[float] = None
        self._orphan_secs = _ORPHAN_SECS
        self._alone = False
        self._orphaned: Optional[float] = None
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
        self._watch_signals()
        os.set_blocking(0, False)
        self._selector.register(0, selectors.EVENT_READ, self._hear)
        self._say("hello")
        while self._has_work():
            for key, _ in self._selector.select(0.05 if self._outgoing.waiting else _TICK_SECS):
                key.data()
            self._reap()
            self._outgoing.flush()
            self._look_at_the_clock()
        if self._send_guard_home is not None:
            self._send_guard_home()

    def _has_work(self) -> bool:
        """Returns whether the main loop must continue.

        After `_end`, it continues until all tasks are reaped and all messages are sent, but at most
        for `_LAST_WORDS_SECS`.
        """
        if self._over_at is None:
            return True
        left = self._over_at + _LAST_WORDS_SECS - time.monotonic()
        return left > 0 and (bool(self._tasks) or self._outgoing.waiting)

    def _watch_signals(self) -> None:
        waking, woken = os.pipe()
        for fd in (waking, woken):
            os.set_blocking(fd, False)
        self._selector.register(waking, selectors.EVENT_READ, lambda: os.read(waking, 4096))
        signal.set_wakeup_fd(woken, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGTERM, lambda *_: self._asked_to_end())
        for signum in (signal.SIGHUP, signal.SIGINT):
            signal.signal(signum, signal.SIG_IGN)

    def _asked_to_end(self) -> None:
        """Handles SIGTERM: under Slurm, tells the launcher; otherwise ends this host's tasks."""
        reason = "the agent got SIGTERM"
        if "SLURM_STEP_ID" in os.environ:
            self._say("told", reason=reason)
        else:
            self._orphan(reason, by_platform=True)

    def _say(self, event: str, **content: Any) -> None:
        self._outgoing.put({"event": event, **content})

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
            self._heard = time.monotonic()
            if self._orphaned is None or order["do"] == "end":
                self._orders[order["do"]](order)

    def _stop_hearing(self, reason: str) -> None:
        self._selector.unregister(0)
        self._orphan(reason)

    def _setup(self, order: Message) -> None:
        self._host = order["mark"]
        self._lease_secs = order["lease_secs"]
        self._orphan_secs = min(_ORPHAN_SECS, order["stop_secs"])
        self._alone = order["alone"]
        self._is_successor = order["successor"]
        if order["containers"] is not None:
            self._containers = Containers(**order["containers"])
        self._send_guard_home = processes.start_guard(
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
        processes.end_all(lambda: processes.marked(**marks), 0)
        try:
            if self._containers is not None and self._is_successor:
                self._containers.remove(0, **marks)
            marks[processes.HOST] = self._host
            order["env"].update(marks)
            if self._containers is not None:
                order = self._containers.prepare(order, marks)
            task = Running(order)
        except OSError as error:
            taken = isinstance(error, sockets.PortTaken)
            self._say_end(order["task"], None, str(error), port_taken=taken)
            return
        self._tasks[task.name] = task
        self._selector.register(task.fd, selectors.EVENT_READ, lambda: self._read(task))
        self._say("started", task=task.name)
        self._forward(task, [])

    def _read(self, task: Running) -> None:
        lines = task.read()
        if lines is None:  # the task has closed its output, but may still run
            self._selector.unregister(task.fd)
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
            self._settled_at = time.monotonic() + _SETTLE_SECS
        marks = {processes.RUN: self._run_id, processes.HOST: self._host}
        processes.end_all(lambda: processes.marked(**marks), 0)
        settle_secs = max(0.0, self._settled_at - time.monotonic())
        self._remove_containers(settle_secs)
        self._over_at = time.monotonic()

    def _remove_containers(self, settle_secs: float, task: Optional[str] = None) -> None:
        """Removes the containers of one task or of all; sends the launcher a note on failure."""
        marks = {processes.RUN: self._run_id}
        marks |= {processes.HOST: self._host} if task is None else {processes.TASK: task}
        if self._containers is not None:
            try:
                self._containers.remove(settle_secs, **marks)
            except OSError as error:
                self._say("note", text=f"{error}; see `clean`")

    def _listen(self, order: Message) -> None:
        self._listening = host_facts.answer(order["ports"], order["token"])
        self._say("listening")

    def _reap(self) -> None:
        """Reports the tasks that have ended, and reaps orphaned processes."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if not pid:
                return
            task = next((task for task in self._tasks.values() if task.pid == pid), None)
            if task is not None:
                self._report_end(task, os.waitstatus_to_exitcode(status))

    def _report_end(self, task: Running, code: int) -> None:
        with contextlib.suppress(KeyError):  # the task had already closed its output
            self._selector.unregister(task.fd)
        self._forward(task, task.finish(code))
        del self._tasks[task.name]
        marks = {processes.RUN: self._run_id, processes.TASK: task.name}
        patience = 0 if code == -signal.SIGKILL else _STRAGGLER_SECS
        left = processes.end_all(lambda: processes.marked(**marks), patience)
        reason = ""
        if self._containers is not None:
            reason = self._containers.reason(code)
            if code < 0:  # the client was killed; its container may still run
                left = []
                self._settled_at = time.monotonic() + _SETTLE_SECS
                self._remove_containers(0, task.name)
        # A task that could not listen ends by itself, and then another process has its port.
        taken = code > 0 and task.port is not None and sockets.is_taken(task.port)
        self._say_end(task.name, code, reason, len(left), port_taken=taken)

    def _say_end(
        self,
        task: str,
        code: Optional[int],
        reason: str,
        stragglers: int = 0,
        *,
        port_taken: bool = False,
    ) -> None:
        self._say(
            "exit",
            task=task,
            code=code,
            reason=reason,
            stragglers=stragglers,
            port_taken=port_taken,
        )

    def _orphan(self, reason: str, *, by_platform: bool = False) -> None:
        """Starts to end the tasks without the launcher: trainers first, which save; the ps last."""
        if self._orphaned is None and self._over_at is None:
            self._orphaned = time.monotonic()
            # The launcher may read this once the connection recovers.
            self._say("orphaned", reason=reason, by_platform=by_platform)
            for task in self._tasks.values():
                if not task.last:
                    task.send(signal.SIGTERM)

    def _look_at_the_clock(self) -> None:
        now = time.monotonic()
        if self._lease_secs is not None and now - self._heard > self._lease_secs:
            self._orphan(f"no message from the launcher for {self._lease_secs:g} s")
        if self._orphaned is None or self._over_at is not None:
            return
        left = self._orphaned + self._orphan_secs - now
        if left < -_LAST_WORDS_SECS or not self._tasks:
            self._end({})
            return
        saved = self._alone and all(task.last for task in self._tasks.values())
        for task in self._tasks.values():
            if left < 0 and not task.last:
                task.send(signal.SIGKILL)
            # With several hosts, the ps stay for trainers elsewhere that may still be saving.
            elif task.last and (left < 0 or saved) and not task.asked_to_end:
                task.asked_to_end = True
                task.send(signal.SIGTERM)
