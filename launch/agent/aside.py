"""Runs functions in child processes, so that the agent goes on while they wait.

A container engine may take long to answer, or never answer. The agent must not wait for it: it
would miss the launcher's heartbeats.
"""

import contextlib
import json
import os
import signal
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Optional

from launch.agent import processes
from launch.agent.machine import Machine

_CHUNK = 1 << 16
_IGNORED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)  # those that are meant for the agent

Done = Callable[[Optional[Any]], None]


@dataclass
class _Child:
    """A child process.

    Attributes:
      pid: its process id.
      done: the function that takes what it returns.
      deadline: the time at which it is killed.
      found: what it has written so far.
    """

    pid: int
    done: Done
    deadline: float
    found: bytearray = field(default_factory=bytearray)


class Asides:
    """The functions of one agent that run in child processes.

    Args:
      machine: the agent's machine, whose `wait` reads what the functions return.
    """

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._running: dict[int, _Child] = {}  # file descriptor of a child's output -> the child

    def run(self, work: Callable[[], Any], done: Done, secs: float) -> None:
        """Runs a function in a child process.

        Args:
          work: a function that returns what JSON can hold.
          done: a function to call in this process with what `work` has returned; with None if the
            child process could not be started, raised an exception, was killed, or was late.
          secs: the seconds after which the child process and its own children are killed.
        """
        reading, writing = os.pipe()
        agent = os.getpid()
        try:
            pid = os.fork()
        except OSError:
            os.close(reading)
            os.close(writing)
            done(None)
            return
        if not pid:
            _work_in_child(work, writing, agent)
        os.close(writing)
        os.set_blocking(reading, False)
        self._running[reading] = _Child(pid, done, self._machine.now() + secs)
        self._machine.watch(reading, lambda: self._read(reading))

    def turn(self) -> None:
        """Kills the child processes that are late."""
        now = self._machine.now()
        for fd, child in list(self._running.items()):
            if now > child.deadline:
                self._forget(fd)
                child.done(None)

    def end(self) -> None:
        """Kills all child processes; what they would have returned is not taken any more."""
        for fd in list(self._running):
            self._forget(fd)

    def _read(self, fd: int) -> None:
        child = self._running.get(fd)
        if child is None:  # it was forgotten a moment ago
            return
        try:
            data = os.read(fd, _CHUNK)
        except BlockingIOError:  # what was ready was another child's, whose number was free again
            return
        child.found += data
        if data:
            return
        self._forget(fd)
        found = None
        with contextlib.suppress(ValueError):  # it was killed before it had written all
            found = json.loads(bytes(child.found))
        child.done(found)

    def _forget(self, fd: int) -> None:
        child = self._running.pop(fd)
        self._machine.unwatch(fd)
        os.close(fd)
        # The first signal reaches its children, the second one a child that has no group yet.
        processes.send(child.pid, signal.SIGKILL, group=True)
        processes.send(child.pid, signal.SIGKILL)


def _work_in_child(work: Callable[[], Any], writing: int, agent: int) -> None:
    """Writes what `work` returns, and ends this process."""
    try:
        signal.set_wakeup_fd(-1)
        for signum in _IGNORED:
            signal.signal(signum, signal.SIG_IGN)
        os.setsid()
        processes.die_with(agent)
        null = os.open(os.devnull, os.O_RDWR)
        for fd in (0, 1, 2):
            os.dup2(null, fd)
        # This includes the agent's output, whose end the launcher waits for.
        os.closerange(3, writing)
        os.closerange(writing + 1, 4096)
        with open(writing, "wb") as file:
            file.write(json.dumps(work()).encode())
    finally:
        os._exit(0)
