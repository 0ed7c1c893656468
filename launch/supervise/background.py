"""Runs a launcher in a process of its own, which needs no terminal, and talks with it.

The process and the one that started it hold the two ends of a socket. The one that started it sends
`LEAVE` to let the run go on without it; if it ends without that, the run is asked to end as by
SIGHUP. The process sends how the run ended.
"""

import contextlib
import fcntl
import json
import os
import select
import signal
import socket
import sys
import threading
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, Optional

from launch.errors import HostError, LaunchError
from launch.record.outcome import Cause, Outcome, end_record, read_cause
from launch.record.output import writer
from launch.record.run_folder import RunFolder
from launch.screen.display import Display

LEAVE = b"l"
_LONGEST = 1 << 20  # bytes of how a run ended

Run = Callable[[Display], Outcome]  # runs a job, and shows what it does


class Background:
    """A launcher in a process of its own, as the process that started it sees it.

    Args:
      folder: the run's folder.
      log: the log of the process.
      pid: the process.
      channel: this end of the socket.
    """

    def __init__(self, folder: RunFolder, log: Path, pid: int, channel: socket.socket) -> None:
        self._folder, self._log, self._pid, self._channel = folder, log, pid, channel
        self._said = b""
        self._is_over = False

    def wait(self, secs: float) -> bool:
        """Waits until the process has ended, at most `secs`; returns whether it has."""
        readable = select.poll()  # select() takes no descriptor from 1,024 on.
        readable.register(self._channel, select.POLLIN)
        if not self._is_over and readable.poll(secs * 1000):
            try:
                data = self._channel.recv(_LONGEST)
            except OSError:
                data = b""
            self._said += data
            self._is_over = not data
        return self._is_over

    def signal(self, signum: int) -> None:
        """Passes on a signal that asks for the end of the run, unless the process has ended."""
        if not self._is_over:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._pid, signum)
            self.leave()  # a SIGHUP on top of it would keep tasks from saving

    def leave(self) -> None:
        """Lets the run go on when this process ends."""
        with contextlib.suppress(OSError):  # it ends at this moment
            self._channel.sendall(LEAVE)

    def outcome(self) -> Outcome:
        """Returns how the run ended; call it once `wait` has returned True.

        Raises:
          LaunchError: the job could not be started, or an error of the launcher ended the process.
        """
        _, status = os.waitpid(self._pid, 0)
        try:
            said: Any = json.loads(self._said)
        except ValueError:
            said = None
        if said is None and os.WIFSIGNALED(status):
            name = signal.Signals(os.WTERMSIG(status)).name
            words = f"{name} has ended the launcher; to end what is left: clean --run "
            words += self._folder.run_id
            return Outcome(128 + os.WTERMSIG(status), words, cause=Cause.LAUNCHER)
        if said is None:
            raise HostError(
                f"the launcher has failed, see {self._log}; to end what is left: "
                f"clean --run {self._folder.run_id}"
            )
        if said["error"] is not None:
            error = HostError if said["exit_code"] == HostError.exit_code else LaunchError
            raise error(said["error"])
        details = tuple(said["details"])
        return Outcome(said["exit_code"], said["reason"], said["task"], details, read_cause(said))


def start(run: Run, folder: RunFolder, log: Path) -> Background:
    """Runs a job in a process that has no terminal; call it while this process has one thread.

    What `run` shows goes to `log`.

    Raises:
      HostError: this machine starts no more processes.
    """
    ours, first = socket.socketpair()
    with first:  # which has the number of a standard stream if the user has closed one
        theirs = socket.socket(fileno=fcntl.fcntl(first, fcntl.F_DUPFD_CLOEXEC, 3))
    sys.stdout.flush()
    sys.stderr.flush()
    try:
        pid = os.fork()
    except OSError as error:
        raise HostError(
            f"the launcher cannot be started: {error.strerror}; see ulimit -u"
        ) from None
    if pid:
        theirs.close()
        return Background(folder, log, pid, ours)
    code = 1
    try:
        ours.close()
        _give_up_the_terminal(log, theirs.fileno())
        _work(run, folder, log, theirs)
        code = 0
    except BaseException:
        traceback.print_exc()  # to the log
    finally:
        os._exit(code)


def _give_up_the_terminal(path: Path, kept: int) -> None:
    """Begins a session without a terminal, and closes every file of the user's but `kept`."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for signum in (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(signum, signal.SIG_DFL)
    os.setsid()
    log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for fd, stream in ((nothing, 0), (log, 1), (log, 2)):
        os.dup2(fd, stream)
    # Others may wait for the end of what is open: a pipe of the shell, or a lock of a script.
    for fd in map(int, os.listdir("/proc/self/fd")):
        if fd > 2 and fd != kept:
            with contextlib.suppress(OSError):  # the list's own
                os.close(fd)


def _work(run: Run, folder: RunFolder, log: Path, channel: socket.socket) -> None:
    """Runs the job, and sends how it ended."""
    threading.Thread(target=_heed, args=(channel,), name="terminal", daemon=True).start()
    display = Display(writer(log), live=False)
    error: Optional[str] = None
    try:
        folder.take_over()
        outcome = run(display)
    except LaunchError as failure:
        error, outcome = str(failure), Outcome(failure.exit_code, "")
    except KeyboardInterrupt:  # before the job's own handling of signals
        outcome = Outcome(128 + signal.SIGINT, "stopped before the start", cause=Cause.USER)
    finally:
        display.close()
    said = {"error": error, "task": outcome.task, "details": outcome.details}
    with contextlib.suppress(OSError):  # nobody waits for it any more
        channel.sendall(json.dumps({**said, **end_record(outcome)}).encode())


def _heed(channel: socket.socket) -> None:
    """Asks this process to end the run if the one that started it ends without leaving it."""
    try:
        word = channel.recv(1)
    except OSError:
        word = b""
    if word != LEAVE:
        os.kill(os.getpid(), signal.SIGHUP)
