"""Starts the tasks of one agent, passes on their output, and reports how they have ended."""

import signal
import socket
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, Optional

from launch.agent import processes, tcp_ports
from launch.agent.aside import Asides
from launch.agent.containers import Containers, Removal
from launch.agent.machine import Machine
from launch.agent.protocol import Message, Outgoing
from launch.agent.task_process import Running, portions

_STRAGGLER_SECS = 0.5  # how long processes that a task left behind have to end
_SETTLE_SECS = 1.5  # until a container appears whose client was killed while creating it
_ENGINE_SECS = 100.0  # more than `Containers` waits for an engine whose processes can be killed
_SILENT_SECS = 30.0  # without a line of a container, until its engine is asked whether it works
_NO_ANSWER = "{} did not answer"
_MOMENT_SECS = 0.05  # in which the log of a task that has ended is usually written


class Tasks:
    """The tasks that one agent runs.

    Args:
      run_id: the id of the run.
      machine: carries out what is decided.
      outgoing: the messages to the launcher, for the tasks' lines.
      say: a function of (event, its fields) that sends any other message.

    Attributes:
      logs: the tasks' logs.
    """

    def __init__(
        self, run_id: str, machine: Machine, outgoing: Outgoing, say: Callable[..., None]
    ) -> None:
        self._run_id, self._machine, self._outgoing, self._say = run_id, machine, outgoing, say
        self._host = ""
        self._is_successor = False
        self._containers: Optional[Containers] = None
        self._running: dict[str, Running] = {}
        self._waiting: dict[str, Message] = {}  # task's name -> its start, which waits for removals
        self.logs = Logs(lambda text: say("note", text=text))
        self._asides = Asides(machine)
        self._asked: set[int] = set()  # process ids of silent tasks for which the engine was asked
        self._settled_at = 0.0
        self._held_ports: list[socket.socket] = []
        self._is_ending = False

    def setup(self, order: Message) -> None:
        """Takes what the launcher says of this host."""
        self._host = order["mark"]
        self._is_successor = order["successor"]
        if order["containers"] is not None:
            self._containers = Containers(**order["containers"])

    @property
    def running(self) -> Collection[Running]:
        """The tasks that have a process."""
        return self._running.values()

    def find_ports(self, count: int) -> list[int]:
        """Chooses other ports than before, and holds them until this process ends."""
        before = self._held_ports
        self._held_ports = tcp_ports.hold(count)
        for held in before:
            held.close()
        return [held.getsockname()[1] for held in self._held_ports]

    def start(self, order: Message) -> None:
        """Starts a task, after ending what an earlier agent has left behind of it."""
        name = order["task"]
        marks = {processes.RUN: self._run_id, processes.TASK: name}
        self._machine.end_marked(0, **marks)
        if self._containers is None or not self._is_successor:
            self._start(order, marks)
            return

        def go_on(removal: Removal) -> None:
            if self._waiting.get(name) is not order:  # it was taken back
                return
            del self._waiting[name]
            if removal.error is None:
                self._start(order, marks)
            else:
                self._say_end(name, None, removal.error)

        self._waiting[name] = order
        self._remove(self._containers, go_on, marks)

    def _start(self, order: Message, marks: dict[str, str]) -> None:
        try:
            if self._is_successor and order["port"] is not None:
                self._held_ports = tcp_ports.hold_with(order["port"], self._held_ports)
            marks = {**marks, processes.HOST: self._host}
            order["env"].update(marks)
            if self._containers is not None:
                order = self._containers.prepare(order, marks)
            task = self._machine.spawn(order)
        except OSError as error:
            taken = isinstance(error, tcp_ports.PortTaken)
            self._say_end(order["task"], None, str(error), port_taken=taken)
            return
        earlier = self._running.get(task.name)
        if earlier is not None:  # it outlived SIGKILL; nobody reads its output any more
            self._machine.unwatch(earlier.fd)
            earlier.log.close()
        self._running[task.name] = task
        self._watch(task)
        self._say("started", task=task.name)

    def signal(self, name: str, signum: int) -> None:
        """Sends a signal to a task; takes back the start of one that is not started yet."""
        self._reap()  # a task that has ended by now did not end by this signal
        if self._waiting.pop(name, None) is not None:
            self._say_end(name, -signum, signals=[signum])
        elif name in self._running:
            self._running[name].send(signum)

    def withdraw_starts(self) -> None:
        """Takes back all starts that wait."""
        self._waiting.clear()

    def turn(self) -> None:
        """Reports the tasks that have ended, and does what is due."""
        self._reap()
        for task in self.logs.turn(self._running.values()):
            if self._running.get(task.name) is task:
                self._watch(task)
        self._asides.turn()
        if self._containers is not None and not self._is_ending:
            self._look_for_silence(self._containers)

    def end(self, done: Callable[[], None]) -> None:
        """Kills all tasks, removes their containers, and then calls `done`."""
        self._is_ending = True
        self._waiting.clear()
        self._asides.end()
        for task in self._running.values():
            task.send(signal.SIGKILL)
            self._settled_at = self._machine.now() + _SETTLE_SECS
        self._machine.end_marked(0, **self._own_marks())
        if self._containers is None:
            done()
            return

        def go_on(removal: Removal) -> None:
            if removal.error is not None:
                self._say("note", text=f"{removal.error}; see `clean`")
            done()

        settle_secs = max(0.0, self._settled_at - self._machine.now())
        self._remove(self._containers, go_on, self._own_marks(), settle_secs)

    def remove_containers(self) -> None:
        """Removes the containers of all tasks, in the guard of a killed agent."""
        if self._containers is not None:
            self._containers.try_to_remove(_SETTLE_SECS, self._own_marks())

    def _read(self, task: Running) -> None:
        if self._running.get(task.name) is not task:  # its end was seen a moment ago
            return
        if self.logs.hold(task):
            self._machine.unwatch(task.fd)
            return
        lines = task.read()
        if lines is None:  # the task has closed its output, but may still run
            self._machine.unwatch(task.fd)
            return
        self._forward(task, lines)

    def _forward(self, task: Running, lines: list[str]) -> None:
        """Sends a task's output to the launcher."""
        for some in portions(lines):
            message = {"event": "lines", "task": task.name, "lines": some, "dropped": task.dropped}
            if self._outgoing.put(message, droppable=True):
                task.dropped = 0
            else:
                task.dropped += len(some)

    def _watch(self, task: Running) -> None:
        self._machine.watch(task.fd, lambda: self._read(task))

    def _reap(self) -> None:
        """Reports the tasks that have ended, and reaps orphaned processes."""
        for pid, code in self._machine.ended_children():
            task = next((task for task in self._running.values() if task.pid == pid), None)
            if task is not None:
                self._take_end(task, code)

    def _take_end(self, task: Running, code: int) -> None:
        self._machine.unwatch(task.fd)
        self._forward(task, task.finish(code))
        self.logs.close(task, _MOMENT_SECS)
        del self._running[task.name]
        patience = 0 if code == -signal.SIGKILL else _STRAGGLER_SECS
        # With HOST: a successor may have started the same task here.
        marks = self._own_marks() | {processes.TASK: task.name}
        left = len(self._machine.end_marked(patience, **marks))
        containers = self._containers
        if containers is None or code == 0 or self._is_ending:
            self._report_end(task, code, "", left, has_ended=True)
            return
        # Its client has failed or was killed; the container may still run.
        if code < 0:
            self._settled_at = self._machine.now() + _SETTLE_SECS

        def go_on(removal: Removal) -> None:
            if removal.error is not None:
                words = f"{removal.error}; its container may still run: see `clean`"
                self._say("note", text=f"{task.name}: {words}")
            reason = containers.reason(code, removal)
            # The engine's own processes beside a container do not count as left behind.
            others = 0 if code < 0 or removal.were_running else left
            self._report_end(task, code, reason, others, has_ended=removal.error is None)

        self._remove(containers, go_on, marks)

    def _report_end(
        self, task: Running, code: int, reason: str, left: int, *, has_ended: bool
    ) -> None:
        """Tells the launcher that a task has ended.

        Args:
          task: the task.
          code: its exit code, -n for signal n.
          reason: why it ended, in words; "" if its exit code says it.
          left: the number of processes that it has left behind.
          has_ended: whether nothing of it can use its port any more.
        """
        # A task that could not listen ends by itself, and then another process has its port.
        may_tell = has_ended and code > 0 and task.port is not None
        taken = may_tell and self._machine.is_port_taken(task.port or 0)
        self._say_end(task.name, code, reason, left, task.signals, port_taken=taken)

    def _say_end(
        self,
        task: str,
        code: Optional[int],
        reason: str = "",
        stragglers: int = 0,
        signals: Sequence[int] = (),
        *,
        port_taken: bool = False,
    ) -> None:
        """Tells the launcher that a task has ended, and which signals it had got before."""
        found: Message = {"code": code, "reason": reason, "stragglers": stragglers}
        self._say("exit", task=task, **found, signals=list(signals), port_taken=port_taken)

    def _remove(
        self,
        containers: Containers,
        done: Callable[[Removal], None],
        marks: dict[str, str],
        settle_secs: float = 0.0,
    ) -> None:
        """Removes containers while the agent goes on; then calls `done`."""

        def work() -> dict[str, Any]:
            return vars(containers.try_to_remove(settle_secs, marks))

        def take(found: Optional[Any]) -> None:
            done(Removal(**(found or {"error": _NO_ANSWER.format(containers.engine)})))

        self._asides.run(work, take, _ENGINE_SECS)

    def _look_for_silence(self, containers: Containers) -> None:
        """Asks the engine whether it works if a container has not written a line for long."""
        for task in self._running.values():
            if task.pid in self._asked or not task.is_silent(_SILENT_SECS):
                continue
            self._asked.add(task.pid)

            def tell(found: Optional[Any], name: str = task.name) -> None:
                (error,) = found or [_NO_ANSWER.format(containers.engine)]
                if error is not None and name in self._running:
                    words = f"{name} has not written a line for {_SILENT_SECS:g} s"
                    self._say("note", text=f"{words}: {error}")

            self._asides.run(lambda: [containers.why_not()], tell, _ENGINE_SECS)

    def _own_marks(self) -> dict[str, str]:
        """Returns the marks of all that this agent has started, and no other agent of the run."""
        return {processes.RUN: self._run_id, processes.HOST: self._host}


class Logs:
    """The logs of tasks that run, and of those that have ended.

    Args:
      note: a function that sends a text to the launcher.
    """

    def __init__(self, note: Callable[[str], None]) -> None:
        self._note = note
        self._held: list[Running] = []  # whose output is not read, since their logs are behind
        self._unwritten: list[Running] = []  # which have ended, but whose logs are not written yet

    @property
    def has_unwritten(self) -> bool:
        """Whether the log of a task that has ended is still to be written."""
        return bool(self._unwritten)

    def hold(self, task: Running) -> bool:
        """Returns whether a task must wait with its output; then `turn` says when it may go on."""
        if not _must_wait(task):
            return False
        self._held.append(task)
        return True

    def turn(self, running: Iterable[Running]) -> list[Running]:
        """Tells what is wrong with logs.

        Args:
          running: the tasks that have a process.

        Returns:
          The tasks whose output may be read again.
        """
        ended, self._unwritten = self._unwritten, []
        for task in ended:
            self.close(task, 0)
        for task in running:
            self._tell_of_errors(task)
        before, self._held = self._held, []
        return [task for task in before if not self.hold(task)]

    def close(self, task: Running, secs: float) -> None:
        """Waits at most `secs` for the log of a task that has ended; later, `turn` looks again."""
        if not task.log.wait(secs):
            self._unwritten.append(task)
        self._tell_of_errors(task)

    def _tell_of_errors(self, task: Running) -> None:
        """Sends a note if lines are missing in a task's log."""
        for error in task.log.new_errors():
            self._note(f"{task.name}: {error}, but the job goes on")


def _must_wait(task: Running) -> bool:
    """Returns whether a task must wait with its output until its log has caught up.

    A task that is to end must not wait: it could not save.
    """
    return task.log.is_behind and not task.signals
