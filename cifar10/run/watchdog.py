"""Ends this process where its main thread cannot: it may wait inside TensorFlow or a library.

The checks that one thread makes all the time:
- do the tasks answer that this one needs, and are they of its job (`ClusterSession`)?
- is the time over that this task has after a signal (`ClusterSession`, `host.signals.Stay`)?
- does the main thread make progress (`Progress`)? The servers of a task answer others in threads of
  their own, even if its main thread hangs in a disk that blocks, or in its input.
A run that ends this way can continue from its last checkpoint.
"""

import contextlib
import faulthandler
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any, Callable, Optional

import tensorflow.compat.v1 as tf

from cifar10.errors import Stopped, TrainingError, TrainingOver, UserError
from cifar10.host.activity import BETWEEN, FIRST, FIRST_STEP, START, STEP, Activity
from cifar10.host.process import end_process

_PERIOD_SECS = 0.25
_ASK_SECS = 5.0  # for an answer of a few numbers
_LAST_WORDS_SECS = 2.0  # Time for the main thread to end by itself.
_FIRST_FACTOR = 3.0  # for phases that come first, which also build and compile
_SEEN_FACTOR = 3.0  # times the longest time that a phase has taken before
# For a process that waits for another one. That one ends after one limit, and the first step after
# its restart may take three.
_FOR_OTHERS_FACTOR = 4.0

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
        self._lock, self._runs = threading.Lock(), False

    @contextlib.contextmanager
    def watching(self, check: Check) -> Iterator[None]:
        """Makes a check for the time of a `with` statement."""
        with self._lock:
            self._checks.append(check)
            if not self._runs:
                threading.Thread(target=self._watch, daemon=True, name="watchdog").start()
            self._runs = True
        try:
            yield
        finally:
            with self._lock:
                self._checks.remove(check)

    def _watch(self) -> None:
        since: dict[Check, float] = {}
        pause = threading.Event()
        while not pause.wait(_PERIOD_SECS):
            with self._lock:
                checks = list(self._checks)
                self._runs = bool(checks)
            if not checks:
                return
            for check in checks:
                try:
                    check()
                    since.pop(check, None)
                except (Stopped, TrainingOver, UserError, TrainingError) as error:
                    first = since.setdefault(check, time.monotonic())
                    if time.monotonic() - first >= _LAST_WORDS_SECS and check in self._checks:
                        _end(error)


def _end(error: Exception) -> None:
    """Ends the process with the line and the exit code that the error has in the main thread."""
    if isinstance(error, Hang):
        with contextlib.suppress(OSError, RuntimeError):  # RuntimeError: stderr is closed.
            faulthandler.dump_traceback(all_threads=True)
    if isinstance(error, Stopped):
        end_process(str(error), 128 + error.signum)
    elif isinstance(error, TrainingOver):
        end_process("training is over; the others have gone", 0)
    elif isinstance(error, UserError):
        end_process(f"error: {error}", 2)
    else:
        end_process(f"training failed: {error}", 1)


class StepProbe:
    """Notes when training steps begin and end, and sees from another thread who takes part in one.

    Args:
      noted: what the main thread does; it gets the phases of steps.
    """

    def __init__(self, noted: Activity) -> None:
        self._activity = noted

    def begin(self, session: Any, standing: Optional[tf.Tensor]) -> None:
        """Notes that training begins in a session; see `Rendezvous.standing`."""
        self._session, self._standing, self._is_first = session, standing, True
        self._activity.begin(START)

    def step_begins(self) -> None:
        """Notes that a step begins."""
        self._activity.begin(FIRST_STEP if self._is_first else STEP)
        self._is_first = False

    def step_ends(self) -> None:
        """Notes that the step has ended."""
        self._activity.begin(BETWEEN)

    def arrived(self) -> Optional[list[bool]]:
        """Returns which synchronous replicas have pushed their gradients of the current round.

        None: updates do not wait for other replicas, or the parameter servers do not reply.
        """
        answer: list[Any] = []

        def run() -> None:
            # RuntimeError: the session is closed.
            with contextlib.suppress(tf.errors.OpError, RuntimeError):
                answer.append(self._session.run(self._standing).tolist())

        if self._standing is not None:  # In a thread, since nothing can interrupt a session.
            thread = threading.Thread(target=run, daemon=True)
            thread.start()
            thread.join(_ASK_SECS)
        if not answer:
            return None
        current, *rounds = answer[0]
        return [one == current for one in rounds]


class Progress:
    """The check that the main thread makes progress, for a watchdog; it raises `Hang` if not.

    Args:
      noted: what the main thread does.
      timeout_secs: the time limit of a phase, in seconds; 0: none.
      probe: looks into the steps of training; None: the process waits for no other.
      trainers: the labels of all trainers, in the order of replicas.
      replica: the index of this trainer among them.
      hears_all: function that returns whether all tasks that this one needs answer; if not, their
        time limit is another one.
    """

    def __init__(
        self,
        noted: Activity,
        timeout_secs: float,
        probe: Optional[StepProbe] = None,
        trainers: Sequence[str] = ("",),
        replica: int = 0,
        hears_all: Callable[[], bool] = lambda: True,
    ) -> None:
        self._activity, self._timeout_secs = noted, timeout_secs
        self._probe, self._trainers, self._replica = probe, trainers, replica
        self._hears_all = hears_all
        self._count, self._silence, self._is_said = -1, 0.0, False
        self._before = noted.now()

    @property
    def limit(self) -> float:
        """The time limit of the current phase, in seconds."""
        phase = self._activity.phase or ""
        factor = _FIRST_FACTOR if phase in FIRST else 1.0
        seen = self._activity.longest.get(phase, 0.0)
        return max(factor * self._timeout_secs, _SEEN_FACTOR * seen)

    def __call__(self) -> None:
        """Raises Hang if the phase lasts for too long."""
        count, now = self._activity.count, self._activity.now()
        passed, self._before = now - self._before, now
        if count != self._count or self._activity.phase is None or not self._hears_all():
            self._count, self._silence, self._is_said = count, 0.0, False
            return
        self._silence += passed
        if self._timeout_secs and self._silence > self.limit:
            others = self.waits_for()
            if count == self._activity.count:
                self._judge(self._activity.phase, others)

    def waits_for(self) -> str:
        """Returns for whom the main thread waits; an empty string: for nobody."""
        arrived = None
        if self._probe and self._activity.is_in_step:
            arrived = self._probe.arrived()
        if not arrived or not arrived[self._replica]:
            return ""
        if self._replica > 0:
            return f"{self._trainers[0]} to end the step"
        late = [label for label, has in zip(self._trainers, arrived) if not has]
        return f"the gradients of {', '.join(late)}" if late else ""

    def _judge(self, phase: str, others: str) -> None:
        """Raises Hang, or says once for what the process waits."""
        way_out = "(--stall-timeout); above is the stack of each thread; start this task again"
        if not others:
            raise Hang(f"no progress in {phase} for {_seconds(self.limit)} {way_out}")
        waits, most = f"{phase} has waited for {others} for", _FOR_OTHERS_FACTOR * self.limit
        # The master may be validating, so workers wait for it; it watches its own progress.
        if self._replica == 0 and self._silence > most:
            raise Hang(f"{waits} {_seconds(most)} {way_out}")
        if not self._is_said:
            with contextlib.suppress(OSError):  # For example, the disk of the log is full.
                line = f"{waits} {_seconds(self.limit)} (--stall-timeout)"
                print(line, file=sys.stderr, flush=True)
        self._is_said = True


def _seconds(limit: float) -> str:
    return f"{round(limit, 1):g} s"
