"""Runs a launcher in a process of its own, which needs no terminal, and talks with it.

The process and the one that started it hold the two ends of a pipe. The one that started it sends
`DETACH` to let the run go on without it; if it ends without that, the run is asked to end as by
SIGHUP. The process sends the lines that a full disk keeps from its log, and how the run ended.
"""

import contextlib
import multiprocessing
import os
import queue
import signal
import sys
import threading
import traceback
from multiprocessing.connection import Connection as Channel
from pathlib import Path
from typing import Optional, Union

from launch.backends.base import Backend
from launch.cluster.tasks import Job
from launch.errors import HostError, LaunchError, NotHereError
from launch.record.output import Line, parse, writer
from launch.record.result import ExitReason, Result
from launch.record.run_folder import RunFolder
from launch.screen.display import Display

DETACH = "detach"
_MOST_UNSAID = 10_000  # lines
_SPEAK_SECS = 10.0


class Background:
    """A launcher in a process of its own, as the process that started it sees it.

    Args:
      folder: the run's folder.
      log: the log of the process.
      pid: the process.
      channel: this end of the pipe.
    """

    def __init__(self, folder: RunFolder, log: Path, pid: int, channel: Channel) -> None:
        self._folder, self._log, self._pid, self._channel = folder, log, pid, channel
        self._said: Union[Result, LaunchError, None] = None
        self._is_over = False
        self._unlogged: list[Line] = []

    def wait(self, secs: float) -> bool:
        """Waits until the process has ended, at most `secs`; returns whether it has."""
        while not self._is_over and self._channel.poll(secs):
            try:
                said = self._channel.recv()
            except (EOFError, OSError):  # it was killed
                said = None
            if isinstance(said, str):
                self._unlogged += map(parse, said.splitlines())
                secs = 0.0
            else:
                self._is_over, self._said = True, said
        return self._is_over

    def take_unlogged(self) -> list[Line]:
        """Returns the lines, since the last call, that the disk did not take."""
        taken, self._unlogged = self._unlogged, []
        return taken

    def signal(self, signum: int) -> None:
        """Passes on a signal that asks for the end of the run, unless the process has ended."""
        if not self._is_over:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._pid, signum)
            self.leave()  # a SIGHUP on top of it would keep tasks from saving

    def leave(self) -> None:
        """Lets the run go on when this process ends."""
        with contextlib.suppress(OSError):  # it ends at this moment
            self._channel.send(DETACH)

    def result(self) -> Result:
        """Returns how the run ended; call it once `wait` has returned True.

        Raises:
          LaunchError: the job could not be started, or an error of the launcher ended the process.
        """
        _, status = os.waitpid(self._pid, 0)
        hint = f"to end what is left: clean --run {self._folder.run_id}"
        if isinstance(self._said, LaunchError):
            raise self._said
        if self._said is not None:
            return self._said
        if os.WIFSIGNALED(status):
            name = signal.Signals(os.WTERMSIG(status)).name
            words = f"{name} has ended the launcher; {hint}"
            return Result(128 + os.WTERMSIG(status), words, cause=ExitReason.LAUNCHER)
        raise HostError(f"the launcher has failed, see {self._log}; {hint}")


def start(backend: Backend, job: Optional[Job], folder: RunFolder, log: Path) -> Background:
    """Runs a job, or rejoins the run's if it is None, in a process that has no terminal.

    Call it while this process has one thread. What the backend shows goes to `log`.

    Raises:
      HostError: this machine starts no more processes.
    """
    ours, theirs = multiprocessing.Pipe()
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
        _work(backend, job, folder, log, theirs)
        code = 0
    except BaseException:
        writer(log).write(traceback.format_exc())
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
    os.closerange(3, kept)
    os.closerange(kept + 1, 1 << 16)


def _work(
    backend: Backend, job: Optional[Job], folder: RunFolder, log: Path, channel: Channel
) -> None:
    """Runs the job, writes how it ended, and sends that."""
    threading.Thread(target=_heed, args=(channel,), name="terminal", daemon=True).start()
    to_say: queue.Queue[Union[str, Result, LaunchError]] = queue.Queue(_MOST_UNSAID)
    speaker = threading.Thread(target=_speak, args=(channel, to_say), daemon=True)
    speaker.start()

    def lost(lines: str) -> None:
        with contextlib.suppress(queue.Full):  # a terminal that stands still holds up nothing
            to_say.put_nowait(lines)

    said: Union[Result, LaunchError]
    try:
        folder.take_over()
        display = Display(writer(log, lost), live=False)
        said = backend.run(job, folder, display) if job else backend.rejoin(folder, display)
        # A job that survives its launcher may go on if its folder does not tell of its end.
        end = None if backend.survives and folder.end() is None else said
    except LaunchError as error:
        said = error
        if job and (isinstance(error, NotHereError) or not isinstance(error, HostError)):
            with contextlib.suppress(HostError):
                folder.remove()  # nothing was started, so there is nothing to list
        failed = Result(error.exit_code, str(error), cause=ExitReason.LAUNCHER)
        end = None if backend.survives else failed  # it may have been submitted
    except KeyboardInterrupt:  # before the job's own handling of signals
        said = end = Result(128 + signal.SIGINT, "stopped before the start", cause=ExitReason.USER)
    if end is not None and folder.path.exists():
        folder.write_end(end)
    with contextlib.suppress(queue.Full):
        to_say.put(said, timeout=_SPEAK_SECS)
    speaker.join(_SPEAK_SECS)


def _speak(channel: Channel, to_say: "queue.Queue[Union[str, Result, LaunchError]]") -> None:
    """Sends lines, and last how the run ended, to the process that started this one."""
    said: object = ""
    while isinstance(said, str):
        said = to_say.get()
        with contextlib.suppress(OSError):  # nobody waits for it any more
            channel.send(said)


def _heed(channel: Channel) -> None:
    """Asks this process to end the run if the one that started it ends without leaving it."""
    try:
        channel.recv()  # DETACH
    except (EOFError, OSError):
        os.kill(os.getpid(), signal.SIGHUP)
