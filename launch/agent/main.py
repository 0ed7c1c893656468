"""The agent: executes the launcher's orders, reports what becomes of its tasks, ends without it.

`Agent` decides, and `Machine` carries out what it decides. All of an agent runs in the main thread,
except what waits: for the launcher, for the output of a task, for a container engine.
"""

import contextlib
import json
import math
import os
import queue
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any, Optional

from launch.agent import host_facts, processes, tcp_ports
from launch.agent.containers import Containers
from launch.agent.protocol import MAGIC, Message, encode, shown
from launch.agent.task_process import TaskProcess

_TICK_SECS = 0.5
_LAST_WORDS_SECS = 2.0  # to collect killed tasks and to send the last messages
_LOST_SECS = 15.0  # maximum time for tasks to save after the launcher is lost
_PATIENCE_SECS = 5.0  # between SIGTERM and SIGKILL, for what is left of a run
_STRAGGLER_SECS = 0.5  # how long processes that a task left behind have to end
_SETTLE_SECS = 1.5  # until a container appears whose client was killed while creating it
_BACKLOG = 16 << 20  # bytes queued for a slow launcher; beyond, droppable messages are dropped
# The settings of an agent that only answers questions.
_NO_RUN: Message = {"label": "", "lease_secs": math.inf, "stop_secs": 0.0, "alone": True}
_LONGEST = 1 << 24  # bytes of an order; the longest name all tasks


class Machine:
    """The machine of an agent.

    Attributes:
      is_slurm_step: whether Slurm runs the agent as a step of a job.
      now: returns the time in seconds; it never jumps.
      guard: makes the tasks end if this process is killed; see `processes.start_guard`.
    """

    now = staticmethod(time.monotonic)
    guard = staticmethod(processes.start_guard)

    def __init__(self) -> None:
        self.is_slurm_step = "SLURM_STEP_ID" in os.environ
        self._to_do: queue.SimpleQueue[Callable[[], object]] = queue.SimpleQueue()
        self._to_send: queue.SimpleQueue[Optional[bytes]] = queue.SimpleQueue()
        self._queued, self._counting = 0, threading.Lock()  # bytes
        self._writer = threading.Thread(target=self._write, daemon=True)

    def begin(self, agent: "Agent") -> None:
        """Begins to listen to the launcher and to signals.

        SIGINT does nothing, but is not ignored: tasks would then ignore it, too.
        """
        signal.signal(signal.SIGTERM, lambda *_: self._to_do.put(agent.asked_to_end))
        signal.signal(signal.SIGCHLD, lambda *_: self._to_do.put(lambda: None))  # ends the wait
        signal.signal(signal.SIGINT, lambda *_: None)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        self._to_send.put(MAGIC)
        self._writer.start()
        threading.Thread(target=self._read, args=(agent,), daemon=True).start()

    def wait(self) -> None:
        """Waits for something to do, for a moment at most; then does all that there is."""
        with contextlib.suppress(queue.Empty):
            self._to_do.get(timeout=_TICK_SECS)()
            while True:
                self._to_do.get_nowait()()

    def aside(self, work: Callable[[], Any], done: Callable[[Any], object]) -> None:
        """Runs `work` in a thread of its own, and then `done` with what it returned in this one."""

        def run() -> None:
            self._to_do.put(partial(done, work()))

        try:
            threading.Thread(target=run, daemon=True).start()
        except RuntimeError:  # this host starts no more threads
            run()

    def send(self, message: Message, *, droppable: bool = False) -> bool:
        """Sends a message to the launcher, from any thread; False if it was dropped."""
        data = encode(message)
        with self._counting:
            if droppable and self._queued > _BACKLOG:
                return False
            self._queued += len(data)
        self._to_send.put(data)
        return True

    def end(self) -> None:
        """Waits a moment until all messages are sent."""
        self._to_send.put(None)
        self._writer.join(_LAST_WORDS_SECS)

    def _read(self, agent: "Agent") -> None:
        # The launcher may end while it writes a line.
        while (line := sys.stdin.buffer.readline(_LONGEST)).endswith(b"\n"):
            try:
                order = json.loads(line)
            except (ValueError, RecursionError):
                order = None
            self._to_do.put(partial(agent.hear, order))
        self._to_do.put(partial(agent.lose_launcher, "the launcher has ended"))

    def _write(self) -> None:
        while (data := self._to_send.get()) is not None:
            with self._counting:
                self._queued -= len(data)
            with contextlib.suppress(OSError):  # the launcher has gone
                while data:
                    data = data[os.write(1, data) :]

    def spawn(self, order: Message) -> TaskProcess:
        """Starts a task; OSError, which says why, if it cannot be started."""
        return TaskProcess(order, self.send)

    def end_labelled(self, patience_secs: float, **labels: str) -> list[int]:
        """Ends all processes with these labels; returns their ids. See `processes.end_all`."""
        return processes.end_all(lambda: processes.labelled(**labels), patience_secs)


def run(run_id: str) -> None:
    """Runs until the launcher ends the agent, or is lost and all tasks have ended."""
    machine = Machine()
    agent = Agent(run_id, machine)
    machine.begin(agent)
    while agent.turn():
        machine.wait()
    agent.dismiss_guard()
    machine.end()
    os._exit(0)  # threads may still wait


class Agent:
    """Runs tasks for one launcher.

    Args:
      run_id: the id of the run, with which the agent labels every process that it starts.
      machine: carries out what the agent decides.

    Attributes:
      dismiss_guard: dismisses the process that ends the tasks if this one is killed.
    """

    def __init__(self, run_id: str, machine: Machine) -> None:
        self._run_id, self._machine = run_id, machine
        self._settings = _NO_RUN
        self._containers: Optional[Containers] = None
        self._running: dict[str, TaskProcess] = {}
        self._held_ports: list[socket.socket] = []
        self._heard = machine.now()
        self._has_lost_launcher = self._has_asked_the_last = self._is_ending = False
        self._due = 0.0  # when the next stage of the end is due
        self.dismiss_guard: Callable[[], None] = lambda: None
        self._orders: dict[str, Callable[[Message], object]] = {
            "begin": self._begin,
            "start": self._start,
            "signal": self._signal,
            "beat": lambda _: self.say("beat"),
            "reap": self._reap_run,
            "probe": lambda order: self.say("probed", **host_facts.probe(order, self._held_ports)),
            "check": lambda order: self.say(
                "checked", failures=host_facts.unreached(order["targets"])
            ),
            "end": lambda _: self._end(),
        }

    def say(self, event: str, **content: Any) -> None:
        """Sends a message, whose texts may come from programs and be longer than any message."""
        self._machine.send(
            {"event": event, **{name: shown(value) for name, value in content.items()}}
        )

    def hear(self, order: Any) -> None:
        """Carries out an order; ends the tasks in order at what is none."""
        self._heard = self._machine.now()
        do = order.get("do") if isinstance(order, dict) else None
        if do not in list(self._orders):  # it may be of any type
            self.lose_launcher("what the launcher sent is no order")
        elif not self._has_lost_launcher or do == "end":
            self._orders[do](order)

    def asked_to_end(self) -> None:
        """Handles SIGTERM: under Slurm, tells the launcher; otherwise ends this host's tasks."""
        if self._machine.is_slurm_step:
            self.say("preempted", reason="the agent got SIGTERM")
        else:
            self.lose_launcher("the agent got SIGTERM", by_platform=True)

    def turn(self) -> bool:
        """Does what is due; returns False once nothing is left to do.

        After `_end`, that is when all tasks are reaped, but at most a moment later.
        """
        self._look_at_the_clock()
        self._reap()
        return not self._is_ending or (bool(self._running) and self._machine.now() < self._due)

    def _begin(self, order: Message) -> None:
        """Takes the settings of a run, and chooses ports."""
        self._settings = order
        if order["containers"] is not None:
            self._containers = Containers(**order["containers"])
        self.dismiss_guard = self._machine.guard(self._end_own)
        self._held_ports = tcp_ports.hold(order["ports"])
        self.say("ready", ports=[held.getsockname()[1] for held in self._held_ports])

    def _own_labels(self) -> dict[str, str]:
        """Returns the labels of all that this agent has started, and no other agent of the run."""
        return {processes.RUN: self._run_id, processes.HOST: self._settings["label"]}

    def _reap_run(self, order: Message) -> None:
        """Ends the remaining processes and containers of a run on this host, including agents."""
        run = order["run"]
        pids = processes.end_all(
            lambda: processes.agents(run) + processes.labelled(**{processes.RUN: run}),
            _PATIENCE_SECS,
        )
        removed: tuple[list[str], Optional[str]] = ([], None)
        if order["engine"] is not None:
            removed = Containers(order["engine"]).remove({processes.RUN: run})
        self.say("reaped", pids=pids, containers=removed[0], error=removed[1])

    def _start(self, order: Message) -> None:
        """Starts a task, after ending what an earlier agent has left behind of it."""
        name, port = order["task"], order["port"]
        labels = {processes.RUN: self._run_id, processes.TASK: name}
        self._machine.end_labelled(0, **labels)
        labels[processes.HOST] = self._settings["label"]
        order["env"].update(labels)
        if port is not None and port not in (held.getsockname()[1] for held in self._held_ports):
            with contextlib.suppress(OSError):  # another process has it, as the task will tell
                self._held_ports.append(tcp_ports.hold_port(port, shared=True))
        try:
            if self._containers is not None:
                order = self._containers.prepare(order, labels)
            task = self._machine.spawn(order)
        except OSError as error:
            self.say("exit", task=name, code=None, reason=str(error), signals=[])
            return
        self._running[name] = task  # an earlier one that outlived SIGKILL is of no interest
        self.say("started", task=name)

    def _signal(self, order: Message) -> None:
        self._reap()  # a task that has ended by now did not end by this signal
        if order["task"] in self._running:
            self._running[order["task"]].send(order["signal"])

    def _reap(self) -> None:
        """Reports the tasks that have ended."""
        for task in list(self._running.values()):
            code = task.poll()
            if code is not None:
                del self._running[task.name]
                self._take_end(task, code)

    def _take_end(self, task: TaskProcess, code: int) -> None:
        task.kill_group()
        patience = 0 if code == -signal.SIGKILL else _STRAGGLER_SECS
        labels = {**self._own_labels(), processes.TASK: task.name}
        self._machine.end_labelled(patience, **labels)
        task.finish()

        containers = self._containers

        def tell(error: Optional[str]) -> None:
            if error is not None:
                words = f"{error}; its container may still run: see `clean`"
                self.say("note", text=f"{task.name}: {words}")
            reason = "" if containers is None else containers.reason(code)
            self.say("exit", task=task.name, code=code, reason=reason, signals=task.signals)

        if containers is None or code == 0 or self._is_ending:
            tell(None)
        else:  # Its client has failed or was killed; the container may still run.
            self._machine.aside(lambda: containers.remove(labels)[1], tell)

    def _end(self) -> None:
        """Kills all tasks and removes their containers; then the agent ends."""
        self._is_ending = True
        for task in self._running.values():
            task.send(signal.SIGKILL)
        error = self._end_own()
        if error is not None:
            self.say("note", text=f"{error}; see `clean`")
        self._due = self._machine.now() + _LAST_WORDS_SECS

    def _end_own(self) -> Optional[str]:
        """Ends all that this agent has started; returns why containers may be left, or None."""
        self._machine.end_labelled(0, **self._own_labels())
        if self._containers is None:
            return None
        return self._containers.remove(self._own_labels(), _SETTLE_SECS)[1]

    def lose_launcher(self, reason: str, *, by_platform: bool = False) -> None:
        """Starts to end the tasks without the launcher: trainers first, which save; the ps last."""
        if self._has_lost_launcher or self._is_ending:
            return
        patience = min(_LOST_SECS, self._settings["stop_secs"])
        self._has_lost_launcher, self._due = True, self._machine.now() + patience
        # The launcher may read this once the connection recovers.
        self.say("launcher_lost", reason=reason, by_platform=by_platform)
        for task in self._running.values():
            if not task.last:
                task.send(signal.SIGTERM)

    def _look_at_the_clock(self) -> None:
        now = self._machine.now()
        lease_secs = self._settings["lease_secs"]
        if now - self._heard > lease_secs:
            self.lose_launcher(f"no message from the launcher for {lease_secs:g} s")
        if not self._has_lost_launcher or self._is_ending:
            return
        is_late = now > self._due
        # With several hosts, the ps stay for trainers elsewhere that may still be saving.
        is_saved = self._settings["alone"] and all(task.last for task in self._running.values())
        if not self._running or (is_late and self._has_asked_the_last):
            self._end()
        elif is_late or (is_saved and not self._has_asked_the_last):
            self._has_asked_the_last = True
            # Not from the last limit on: this process may have stood still, as its machine may.
            self._due = max(now, self._due) + _LAST_WORDS_SECS
            for task in self._running.values():
                task.send(signal.SIGTERM if task.last else signal.SIGKILL)
