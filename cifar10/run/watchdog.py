"""Ends this process where its main thread cannot: it may wait inside TensorFlow or a library.

The checks that one thread makes all the time:
- do the tasks answer that this one needs, and are they of its job (`ClusterSession`)?
- is the time over that this task has after a signal (`ClusterSession`, `host.process.Stay`)?
- does the main thread make progress (`Progress`)? The servers of a task answer others in threads of
  their own, even if its main thread hangs in a disk that blocks, or in its input.
A run that ends this way can continue from its last checkpoint.
"""

import contextlib
import dataclasses
import faulthandler
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any, Callable, Optional

import tensorflow.compat.v1 as tf

from cifar10.errors import Stopped, TrainingError, TrainingOver, UserError, last_words
from cifar10.host.activity import FIRST, Activity
from cifar10.host.process import end_process
from cifar10_program.streams import complain

_PERIOD_SECS = 0.25
_ASK_SECS = 5.0  # for an answer of a few numbers
_LAST_WORDS_SECS = 2.0  # Time for the main thread to end by itself.
_FIRST_FACTOR = 3.0  # for phases that come first, which also build and compile
_LONGEST_GAP_SECS = 2.0  # A longer one was a standstill, such as SIGSTOP, and does not count.

Check = Callable[[], None]


class Hang(TrainingError):
    """The main thread makes no progress; where it is stands in the stacks of all threads."""


class Watchdog:
    """The thread that ends this process if a check raises what would end the main thread.

    That is Stopped, TrainingOver, a UserError or a TrainingError, and it ends the process only if
    the check raises again a moment later: the main thread may end by itself meanwhile, or a task
    that was missing may answer. So this process goes on after it was stopped itself, when all
    answers seem old at first.

    Attributes:
      activity: what the main thread does.
    """

    def __init__(self) -> None:
        self.activity = Activity()
        self._checks: list[Check] = []
        self._thread = threading.Thread(target=self._watch, daemon=True, name="watchdog")
        self._session: Any = None
        self._standing: Optional[tf.Tensor] = None

    @contextlib.contextmanager
    def watching(self, check: Check) -> Iterator[None]:
        """Makes a check for the time of a `with` statement."""
        self._checks.append(check)
        if not self._thread.is_alive():
            self._thread.start()
        try:
            yield
        finally:
            self._checks.remove(check)

    def _watch(self) -> None:
        since: dict[Check, float] = {}
        pause = threading.Event()
        while not pause.wait(_PERIOD_SECS):
            for check in tuple(self._checks):
                try:
                    check()
                    since.pop(check, None)
                except (Stopped, TrainingOver, UserError, TrainingError) as error:
                    first = since.setdefault(check, time.monotonic())
                    if time.monotonic() - first >= _LAST_WORDS_SECS and check in self._checks:
                        _end(error)

    def look_into(self, session: Any, standing: Optional[tf.Tensor]) -> None:
        """Notes the session whose steps begin now; see `SyncBarrier.rounds`."""
        self._session, self._standing = session, standing

    def arrived(self) -> list[bool]:
        """Returns which synchronous replicas have pushed their gradients of the current round.

        An empty list: updates do not wait for other replicas, or parameter servers do not reply.
        """
        answer: list[Any] = []

        def run() -> None:
            # RuntimeError: the session is closed.
            with contextlib.suppress(tf.errors.OpError, RuntimeError):
                answer.extend(self._session.run(self._standing).tolist())

        if self._standing is not None:  # In a thread, since nothing can interrupt a session.
            thread = threading.Thread(target=run, daemon=True)
            thread.start()
            thread.join(_ASK_SECS)
        return [one == answer[0] for one in answer[1:]]


def _end(error: Exception) -> None:
    """Ends the process with the line and the exit code that the error has in the main thread."""
    if isinstance(error, Hang):
        with contextlib.suppress(OSError, RuntimeError):  # RuntimeError: stderr is closed.
            faulthandler.dump_traceback(all_threads=True)
    end_process(*last_words(error))


@dataclasses.dataclass(eq=False)
class Progress:
    """The check that the main thread makes progress, for a watchdog; it raises `Hang` if not.

    Attributes:
      watched: the watchdog, which knows what the main thread does.
      timeout_secs: the time limit of a phase, in seconds; 0: none.
      trainers: the labels of all trainers, in the order of replicas.
      replica: the index of this trainer among them.
      hears_all: function that returns whether all tasks that this one needs answer; if not, their
        time limit is another one.
    """

    watched: Watchdog
    timeout_secs: float
    trainers: Sequence[str] = ("",)
    replica: int = 0
    hears_all: Callable[[], bool] = lambda: True

    def __post_init__(self) -> None:
        """Begins to count."""
        self._count, self._silence, self._is_said = -1, 0.0, False
        self._before = time.monotonic()

    def __call__(self) -> None:
        """Raises Hang if the phase lasts for too long."""
        activity, now = self.watched.activity, time.monotonic()
        count, phase = activity.count, activity.phase
        passed, self._before = min(now - self._before, _LONGEST_GAP_SECS), now
        if count != self._count or phase is None or not self.hears_all():
            self._count, self._silence, self._is_said = count, 0.0, False
            return
        self._silence += passed
        limit = self.timeout_secs * (_FIRST_FACTOR if phase in FIRST else 1.0)
        if not self.timeout_secs or self._silence <= limit:
            return
        others = self.waits_for() if activity.is_in_step else ""
        if count != activity.count:
            return
        if not others:
            raise Hang(
                f"no progress in {phase} for {limit:g} s (--stall-timeout); above is the stack of "
                "each thread; start this task again"
            )
        if not self._is_said:  # That one's watchdog ends it.
            complain(f"{phase} has waited for {others} for {limit:g} s (--stall-timeout)")
            self._is_said = True

    def waits_for(self) -> str:
        """Returns for whom the main thread waits in a step; an empty string: for nobody."""
        arrived = self.watched.arrived()
        if not arrived or not arrived[self.replica]:
            return ""
        late = [label for label, has in zip(self.trainers, arrived) if not has]
        return ", ".join(late or self.trainers[: min(self.replica, 1)])
