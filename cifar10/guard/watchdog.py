"""Ends this process where its main thread cannot: it may wait inside TensorFlow or a library.

The checks that threads make all the time:
- do the tasks answer that this one needs, and are they of its job (`guard.ClusterGuard`)?
- is the time over that this task has after a signal (`StopRequest.ends`)?
- does the main thread make progress (`StallCheck`)? The servers of a task answer others in threads
  of their own, even if its main thread hangs in a disk that blocks, or in its input.
A run that ends this way can continue from its last checkpoint.
"""

import contextlib
import dataclasses
import faulthandler
import math
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any, Callable, Optional

import tensorflow.compat.v1 as tf

from cifar10.errors import Stopped, TrainingError, TrainingOver, UserError, describe_error
from cifar10.host.process import end_process
from cifar10_program.streams import log_error

_PERIOD_SECS = 0.25
_ASK_SECS = 5.0  # for an answer of a few numbers, and from one question to the next
_LAST_WORDS_SECS = 2.0  # Time for the main thread to end by itself.
_FIRST_FACTOR = 3.0  # for phases that come first, which also build graphs and fill buffers
_LONGEST_GAP_SECS = 2.0  # A longer one was a standstill, such as SIGSTOP, and does not count.

# The phases in the words of messages, which say "no progress in PHASE".
START = "the start of training"
FIRST_STEP = "the first training step"
STEP = "a training step"
BETWEEN = "the work between two training steps"
SAVING = "saving a checkpoint"
EVALUATION = "an evaluation"


class Hang(TrainingError):
    """The main thread makes no progress; where it is stands in the stacks of all threads."""


@contextlib.contextmanager
def watching(check: Callable[[], None]) -> Iterator[None]:
    """Ends this process if a check raises what would end the main thread, until the `with` ends.

    That is Stopped, TrainingOver, a UserError or a TrainingError; another exception counts as one,
    since the check is worth nothing then. The process ends only if the check raises again a moment
    later: the main thread may end by itself meanwhile, or a task that was missing may answer. So
    this process goes on after it was stopped itself, when all answers seem old at first.
    """
    is_over = threading.Event()
    arguments = (check, is_over)
    threading.Thread(target=_watch, args=arguments, daemon=True, name="watchdog").start()
    try:
        yield
    finally:
        is_over.set()


def _watch(check: Callable[[], None], is_over: threading.Event) -> None:
    since = math.inf  # when it raised for the first time
    while not is_over.wait(_PERIOD_SECS):
        try:
            check()
            since = math.inf
        except Exception as error:  # Any: nobody would see a hang after the thread's end.
            since = min(since, time.monotonic())
            if time.monotonic() - since >= _LAST_WORDS_SECS and not is_over.is_set():
                _end(error)


def _end(error: Exception) -> None:
    """Ends the process with the line and the exit code that the error has in the main thread."""
    if not isinstance(error, (Stopped, TrainingOver, UserError, TrainingError)):
        what = f"{type(error).__name__}: {error}"
        error = TrainingError(f"this process cannot be watched ({what}); start this task again")
    if isinstance(error, Hang):
        with contextlib.suppress(OSError, RuntimeError):  # RuntimeError: stderr is closed.
            faulthandler.dump_traceback(all_threads=True)
    saved = error.saved if isinstance(error, Stopped) else None
    end_process(*describe_error(error), saved)


@dataclasses.dataclass(eq=False)
class StallCheck:
    """The phase of the main thread, and the check that it makes progress, for `watching`.

    The main thread notes each beginning; other threads read.

    Attributes:
      timeout_secs: the time limit of a phase, in seconds; 0: none.
      replicas: the labels of all trainers, in the order of replicas.
      replica: the index of this trainer among them.
      hears_all: function that returns whether all tasks that this one needs answer; if not, their
        time limit is another one.
      session: the session whose steps the main thread takes.
      rounds: see `SyncBarrier.rounds`; None where an update waits for no other replica.
      phase: the current phase; None: a wait that has a time limit of its own, or nothing watched.
      count: how many beginnings have been noted; it grows as long as there is progress.
    """

    timeout_secs: float
    replicas: Sequence[str] = ()
    replica: int = 0
    hears_all: Callable[[], bool] = lambda: True
    session: Any = None
    rounds: Optional[tf.Tensor] = None
    phase: Optional[str] = None
    count: int = 0

    def __post_init__(self) -> None:
        """Begins to count."""
        self._count, self._silence, self._is_said = -1, 0.0, False
        self._before = time.monotonic()

    def begin(self, phase: Optional[str]) -> None:
        """Notes that a phase begins, or the next part of the same one, such as a batch."""
        self.phase = phase
        self.count += 1

    @property
    def is_in_step(self) -> bool:
        """Whether the main thread is inside a training step."""
        return self.phase in (FIRST_STEP, STEP)

    def __call__(self) -> None:
        """Raises Hang if the phase lasts for too long."""
        now, count, phase = time.monotonic(), self.count, self.phase
        passed, self._before = min(now - self._before, _LONGEST_GAP_SECS), now
        if count != self._count or phase is None or not self.hears_all():
            self._count, self._silence, self._is_said = count, 0.0, False
            return
        before, self._silence = self._silence, self._silence + passed
        if self.is_in_step and before // _ASK_SECS < self._silence // _ASK_SECS:
            self._ask_rounds()  # So it looks again whether its round is over, see `SyncBarrier`.
        limit = self.timeout_secs * (_FIRST_FACTOR if phase in (START, FIRST_STEP) else 1.0)
        if not self.timeout_secs or self._silence <= limit:
            return
        others = self._waits_for() if self.is_in_step else ""
        if count != self.count:
            return
        if not others:
            way_out = "above is the stack of each thread; start this task again"
            raise Hang(f"no progress in {phase} for {limit:g} s (--stall-timeout); {way_out}")
        if not self._is_said:  # That one's watchdog ends it.
            log_error(f"{phase} has waited for {others} for {limit:g} s (--stall-timeout)")
            self._is_said = True

    def _waits_for(self) -> str:
        """Returns for whom the main thread waits in a step; an empty string: for nobody.

        It has pushed its gradients of the round then. Nobody, too, if the servers do not reply.
        """
        answer = self._ask_rounds()
        if not answer or answer[1 + self.replica] != answer[0]:
            return ""
        late = [name for name, pushed in zip(self.replicas, answer[1:]) if pushed != answer[0]]
        return ", ".join(late or self.replicas[: min(self.replica, 1)])

    def _ask_rounds(self) -> list[int]:
        """Returns the `rounds`; an empty list if there are none, or the servers do not reply."""
        answer: list[int] = []

        def run() -> None:
            # RuntimeError: the session is closed.
            with contextlib.suppress(tf.errors.OpError, RuntimeError):
                answer.extend(self.session.run(self.rounds).tolist())

        if self.rounds is not None:  # In a thread, since nothing can interrupt a session.
            thread = threading.Thread(target=run, daemon=True)
            thread.start()
            thread.join(_ASK_SECS)
        return answer
