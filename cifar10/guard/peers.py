"""Which tasks of the cluster answer. Standard library only.

TensorFlow itself waits for a missing task without a limit and does not say which one it is. It also
waits for a task that hangs: one that was stopped by SIGSTOP, or whose machine swaps.

TensorFlow's servers speak gRPC, whose protocol is HTTP/2. There both sides begin a connection with
a SETTINGS frame (RFC 9113, section 3.4), and the server's frame is the answer. That the kernel
accepts the connection says less: it does so even for a process that is stopped or hangs.
"""

import contextlib
import dataclasses
import os
import socket
import struct
import threading
import time
from collections.abc import Iterable, Sequence
from typing import Callable, Optional

from cifar10.cluster.spec import Task, split_address
from cifar10.errors import ConfigError, TrainingError, UserError
from cifar10.host.process import log
from cifar10_program.streams import log_error

_PERIOD_SECS = 1.0  # Time between two questions to a task that answers.
_ANSWER_SECS = 2.0
_SAY_AFTER_SECS = 5.0

# What a client sends first, with an empty SETTINGS frame. Without it, a TensorFlow server keeps the
# connection for two minutes, even if the client has closed it.
_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0" + b"\4" + b"\0" + b"\0\0\0\0"
# A frame's header: 3 bytes of payload length, type, flags, and 4 bytes of stream.
_HEADER_BYTES, _SETTINGS_OF_CONNECTION = 9, b"\4\0\0\0\0\0"
_RESET = struct.pack("ii", 1, 0)


class Mismatch(ConfigError):
    """A task of this job trains otherwise; the right one may still come."""


class Probe:
    """Asks one task; each answer takes a connection of its own.

    Args:
      address: `host:port` of the task.

    Attributes:
      is_here: whether the task's process existed at the latest question, though it may hang.
      unresolved: what the resolver said at the latest question, if it did not know the name; or "".
    """

    def __init__(self, address: str) -> None:
        self._host_and_port = split_address(address)
        self._socket: Optional[socket.socket] = None
        self.is_here, self.unresolved = False, ""

    def answers(self, timeout_secs: float) -> bool:
        """Asks the task, and returns whether its process answers within the timeout.

        If it does not, the connection remains, and the next call waits for the same answer.
        """
        try:
            if self._socket is None:
                self._socket = socket.create_connection(self._host_and_port, timeout_secs)
                # Closing sends a reset, so that no port of this host stays occupied for a minute.
                self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
                self._socket.sendall(_PREFACE)
            self._socket.settimeout(timeout_secs)
            try:
                received = self._socket.recv(_HEADER_BYTES)
            except socket.timeout:
                self.is_here = True
                return False
            self.is_here = received[3:] == _SETTINGS_OF_CONNECTION
        except (OSError, UnicodeError) as error:  # UnicodeError: a part of the name is empty.
            self.is_here = False
            self.unresolved = str(error.strerror) if isinstance(error, socket.gaierror) else ""
        self.close()
        return self.is_here

    def close(self) -> None:
        """Closes the connection if there is one."""
        if self._socket:
            self._socket.close()
        self._socket = None


def answers(address: str) -> bool:
    """Returns whether a TensorFlow server at `host:port` answers."""
    with contextlib.closing(Probe(address)) as probe:
        return probe.answers(_ANSWER_SECS)


@dataclasses.dataclass
class _State:
    """What is known of a task.

    Attributes:
      probe: asks it.
      seen: the time of its latest answer (`time.monotonic`); at first, when this process began.
      answers: whether it answered the latest question.
      wrong: why it must not be used, if the process that is there belongs to another job.
      why: why the latest process that was there could not be used, if another one may come.
      is_said: whether a line has said that it does not answer.
    """

    probe: Probe
    seen: float
    answers: bool = False
    wrong: Optional[str] = None
    why: str = ""
    is_said: bool = False


class Peers:
    """Asks other tasks again and again whether they answer, in a thread for each of them.

    Args:
      tasks: the tasks.
      timeout_secs: seconds for which a task may fail to answer.
      meet: function called with a task that begins to answer, in the task's thread. It returns
        whether the task may be used, or raises Mismatch, or another ConfigError if it belongs to
        another job. The task does not count as answering until it returns True.
    """

    def __init__(
        self, tasks: Iterable[Task], timeout_secs: float, meet: Callable[[Task], bool]
    ) -> None:
        self._meet, self._timeout_secs = meet, timeout_secs
        self._states = {task: _State(Probe(task.address), time.monotonic()) for task in tasks}
        self._stopped = threading.Event()

    def start(self) -> None:
        """Starts to ask, in daemon threads."""
        for task in self._states:
            threading.Thread(target=self._ask, args=(task,), daemon=True).start()

    def stop(self) -> None:
        """Ends the questions; from then on no task counts as silent or wrong."""
        self._stopped.set()

    def is_here(self, task: Task) -> bool:
        """Returns whether the task's process existed at the latest question; it may hang."""
        return self._states[task].probe.is_here

    def silent(self, tasks: Iterable[Task], secs: float = _SAY_AFTER_SECS) -> list[Task]:
        """Returns which of the tasks have not answered for so many seconds, whatever the reason."""
        if self._stopped.is_set():
            return []
        before = time.monotonic() - secs
        # A limit may be shorter than the time between questions: a task that answers is not late.
        states = ((task, self._states[task]) for task in tasks)
        return [task for task, state in states if state.seen < before and not state.answers]

    def missing(self, tasks: Iterable[Task], spare: int = 0) -> Optional[str]:
        """Describes the tasks that have not answered for longer than the timeout.

        Args:
          tasks: the tasks to look at.
          spare: how many of them may be missing.

        Returns:
          A message for the user; None if no more are missing.
        """
        gone = self.silent(tasks, self._timeout_secs)
        if len(gone) <= spare:
            return None
        names, limit = ", ".join(map(str, gone)), f"{self._timeout_secs:g} s (--cluster-timeout)"
        for task in gone:
            if self._states[task].why:
                return f"{names} could not be used for {limit}: {self._states[task].why}"
        have = "has" if len(gone) == 1 else "have"
        way_out = "start what is missing again with the same TF_CONFIG or flags, and then this task"
        return f"{names} {have} not answered for {limit}; {way_out}"

    def require(self, tasks: Iterable[Task], spare: int = 0) -> None:
        """Raises TrainingError if tasks are missing, ConfigError if they are another job's."""
        found = [wrong for task in tasks if (wrong := self._states[task].wrong)]
        if len(found) > spare and not self._stopped.is_set():
            raise ConfigError(found[0])
        missing = self.missing(tasks, spare)
        if missing:
            raise TrainingError(missing)

    def news(self, needed: Iterable[Task]) -> list[str]:
        """Returns a line for each needed task that has become silent, or that answers again."""
        again = [task for task, state in self._states.items() if state.is_said and state.answers]
        gone = [task for task in self.silent(needed) if not self._states[task].is_said]
        for task in again + gone:
            self._states[task].is_said = task in gone
        words = f"does not answer; --cluster-timeout is {self._timeout_secs:g} s"
        return [*(f"{task} answers again" for task in again), *(f"{task} {words}" for task in gone)]

    def wait_for(
        self, tasks: Sequence[Task], check: Callable[[], None] = lambda: None, says: bool = False
    ) -> None:
        """Waits until all of the tasks answer.

        Args:
          tasks: the tasks.
          check: function called repeatedly meanwhile; an exception that it raises ends the wait.
          says: whether a line names them after some seconds.

        Raises:
          ConfigError: a task belongs to another job.
          TrainingError: a task has not answered within the timeout.
        """
        started = checked = time.monotonic()
        while absent := [task for task in tasks if not self._states[task].answers]:
            if time.monotonic() >= checked:  # A worker's reads files that all share.
                check()
                checked = time.monotonic() + _PERIOD_SECS / 2
            self.require(absent)
            if says and time.monotonic() - started > _SAY_AFTER_SECS:
                log(f"waiting for {', '.join(map(str, absent))}")
                says = False  # Once is enough.
            time.sleep(0.05)

    def _ask(self, task: Task) -> None:
        state = self._states[task]
        with contextlib.closing(state.probe):
            while not self._stopped.is_set():
                try:
                    state.answers = self._look(task, state)
                    if state.answers:
                        state.seen = time.monotonic()
                except Mismatch as error:
                    self._not_yet(state, str(error), log)
                except UserError as error:
                    state.answers, state.wrong = False, str(error)
                except Exception as error:  # The thread goes on: its last answer would stay.
                    why = f"{type(error).__name__} while it was asked: {error}"
                    self._not_yet(state, why, lambda line: log_error(f"{task}: {line}"))
                self._stopped.wait(_PERIOD_SECS if state.answers else _PERIOD_SECS / 4)

    def _look(self, task: Task, state: _State) -> bool:
        """Asks a task once; returns whether it may be used."""
        answers, unresolved = state.probe.answers(_ANSWER_SECS), state.probe.unresolved
        # The names of pods are known once the pods are there.
        if unresolved and "KUBERNETES_SERVICE_HOST" not in os.environ:
            self._not_yet(state, f"{task}: {unresolved}; correct the address, or the DNS", log)
        if answers and not state.answers:
            answers, state.wrong = self._meet(task), None
        elif not state.probe.is_here:
            state.wrong = None  # What was said of a process that has ended is not true now.
        if answers:
            state.why = ""
        return answers

    @staticmethod
    def _not_yet(state: _State, why: str, tell: Callable[[str], None]) -> None:
        """Notes why a task counts as not answering, and says it once."""
        is_new, state.answers, state.why = why != state.why, False, why
        if is_new:
            tell(why)
