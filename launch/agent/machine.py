"""What an agent needs of its machine: time, files to wait for, processes, signals."""

import contextlib
import os
import selectors
import signal
import time
from collections.abc import Callable, Iterator

from launch.agent import processes, tcp_ports
from launch.agent.protocol import Message
from launch.agent.task_process import Running


class Machine:
    """The machine of an agent: the agent decides, and this carries it out.

    Attributes:
      is_slurm_step: whether Slurm runs the agent as a step of a job.
    """

    def __init__(self) -> None:
        self.is_slurm_step = "SLURM_STEP_ID" in os.environ
        self._selector = selectors.DefaultSelector()

    def now(self) -> float:
        """Returns the time in seconds; it never jumps."""
        return time.monotonic()

    def watch(self, fd: int, ready: Callable[[], object]) -> None:
        """Makes `wait` call `ready` when something can be read from a file descriptor."""
        self._selector.register(fd, selectors.EVENT_READ, ready)

    def unwatch(self, fd: int) -> None:
        """Undoes `watch`; a file descriptor that is not watched is ignored."""
        with contextlib.suppress(KeyError):
            self._selector.unregister(fd)

    def wait(self, secs: float) -> None:
        """Waits at most `secs`, or until there is something to read or a signal has come."""
        for key, _ in self._selector.select(secs):
            key.data()

    def watch_signals(self, asked_to_end: Callable[[], None]) -> None:
        """Makes `wait` call `asked_to_end` after SIGTERM, and end at that and the end of a child.

        A signal may come in the middle of the writing of a message, so its handler does nothing.
        SIGINT does nothing at all, but is not ignored: tasks would then ignore it, too.
        """
        waking, woken = os.pipe()
        for fd in (waking, woken):
            os.set_blocking(fd, False)

        def wake_up() -> None:
            if signal.SIGTERM in os.read(waking, 4096):  # a byte for each signal, its number
                asked_to_end()

        self.watch(waking, wake_up)
        signal.set_wakeup_fd(woken, warn_on_full_buffer=False)
        for signum in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT):
            signal.signal(signum, lambda *_: None)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)

    def spawn(self, order: Message) -> Running:
        """Starts a task; OSError, which says why, if it cannot be started."""
        return Running(order)

    def ended_children(self) -> Iterator[tuple[int, int]]:
        """Yields (process id, exit code, or -n for signal n) of children that have ended."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if not pid:
                return
            yield pid, os.waitstatus_to_exitcode(status)

    def end_marked(self, patience_secs: float, **marks: str) -> list[int]:
        """Ends all processes with these marks; returns their ids. See `processes.end_all`."""
        return processes.end_all(lambda: processes.marked(**marks), patience_secs)

    def is_port_taken(self, port: int) -> bool:
        """Returns whether a process of this machine listens on a port."""
        return tcp_ports.is_taken(port)

    def guard(self, run_id: str, host: str, finish: Callable[[], None]) -> Callable[[], None]:
        """Makes the tasks end if this process is killed; see `processes.start_guard`."""
        return processes.start_guard(run_id, host, finish)
