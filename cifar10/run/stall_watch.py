"""Ends a process that makes no progress, although its TensorFlow server answers the others.

The tasks of a cluster ask each other's servers whether they answer. A server does, in threads of
its own, even if the process's main thread hangs: in a disk that blocks, in an input thread, in a
library. So each trainer watches its own progress, too.
"""

import contextlib
import faulthandler
import functools
import sys
import threading
from collections.abc import Sequence
from typing import Callable, NamedTuple, Optional

from cifar10.host import activity
from cifar10.host.activity import FIRST, Activity
from cifar10.host.process_end import end_process
from cifar10.run.hooks.step_probe import NoAnswer, StepProbe
from cifar10.run.job import Job

_PERIOD_SECS = 1.0
_FIRST_FACTOR = 3.0  # for phases that come first, which also build and compile
_SEEN_FACTOR = 3.0  # times the longest time that a phase has taken before
# For a process that waits for another one. That one ends after one limit, and the first step after
# its restart may take three.
_FOR_OTHERS_FACTOR = 4.0


class Stall(NamedTuple):
    """What a process waits for.

    Attributes:
      where: the phase, in words.
      others: the tasks that it waits for, in words; empty: it hangs by itself.
      may_end: whether the process is ended if the others do not go on.
    """

    where: str
    others: str = ""
    may_end: bool = True


class StallWatch:
    """A thread that ends this process with exit code 1 if its main thread makes no progress.

    Args:
      noted: what the main thread does.
      timeout_secs: the time limit of a phase, in seconds; 0: no watch.
      look: function that finds out what the process waits for.
      is_heard: function that returns whether all tasks that this one needs answer; if not, it is
        LivenessMonitor that decides.
    """

    def __init__(
        self,
        noted: Activity,
        timeout_secs: float,
        look: Optional[Callable[[], Stall]] = None,
        is_heard: Callable[[], bool] = lambda: True,
    ) -> None:
        self._activity, self._timeout_secs = noted, timeout_secs
        self._look = look or (lambda: Stall(noted.phase or ""))
        self._is_heard = is_heard
        self._ended = threading.Event()

    def __enter__(self) -> "StallWatch":
        if self._timeout_secs:
            period = min(_PERIOD_SECS, self._timeout_secs / 10)
            # While this process is stopped (SIGSTOP), it can make no progress.
            self._activity.time.count_gaps_up_to(2 * period)
            threading.Thread(
                target=self._watch, args=(period,), daemon=True, name="stall watch"
            ).start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._ended.set()
        self._activity.time.count_gaps_up_to(None)

    @property
    def limit(self) -> float:
        """The time limit of the current phase, in seconds."""
        phase = self._activity.phase or ""
        factor = _FIRST_FACTOR if phase in FIRST else 1.0
        seen = self._activity.longest.get(phase, 0.0)
        return max(factor * self._timeout_secs, _SEEN_FACTOR * seen)

    def _watch(self, period: float) -> None:
        count, silence, said = -1, 0.0, False
        clock = self._activity.time
        before = clock.now()
        while not self._ended.wait(period):
            now = clock.now()
            passed, before = now - before, now
            progresses = count != self._activity.count or self._activity.phase is None
            if progresses or not self._is_heard():
                count, silence, said = self._activity.count, 0.0, False
                continue
            silence += passed
            if silence > self.limit:
                said = self._judge(silence, said) or said

    def _judge(self, silence: float, said: bool) -> bool:
        """Ends the process, or says once what it waits for; returns whether it has said that."""
        count = self._activity.count
        stall = self._look()
        if count != self._activity.count or self._ended.is_set():
            return False
        if not stall.others:
            return self._end(f"no progress in {stall.where} for {_seconds(self.limit)}")
        waits = f"{stall.where} has waited for {stall.others} for"
        if stall.may_end and silence > _FOR_OTHERS_FACTOR * self.limit:
            return self._end(f"{waits} {_seconds(_FOR_OTHERS_FACTOR * self.limit)}")
        if not said:
            said_limit = f"{_seconds(self.limit)} (--stall-timeout)"
            with contextlib.suppress(OSError):  # For example, the disk of the log is full.
                print(f"{waits} {said_limit}", file=sys.stderr, flush=True)
        return True

    def _end(self, what: str) -> bool:
        def words() -> str:
            with contextlib.suppress(OSError, RuntimeError):  # RuntimeError: stderr is closed.
                faulthandler.dump_traceback(all_threads=True)
            return (
                f"training failed: {what} (--stall-timeout); above is the stack of each thread; "
                "start this task again"
            )

        end_process(words, 1)
        return True


def _seconds(limit: float) -> str:
    return f"{round(limit, 1):g} s"


def look_into_step(
    noted: Activity, probe: StepProbe, trainers: Sequence[str], replica: int
) -> Stall:
    """Finds out what a trainer waits for.

    Args:
      noted: what the main thread does.
      probe: reads the state of the step.
      trainers: the labels of all trainers, in the order of replicas.
      replica: the index of this trainer among them.
    """
    phase = noted.phase or ""
    if not noted.is_in_step:
        return Stall(phase)
    try:
        if probe.waits_for_input():
            return Stall(f"{phase}, which waits for its input,")
        arrived = probe.standing()
    except NoAnswer:
        return Stall(f"{phase}, whose variables cannot be read,")
    if arrived is None or not arrived[replica]:
        return Stall(phase)
    if replica > 0:  # The master may be validating; it watches its own progress.
        return Stall(phase, f"{trainers[0]} to end the step", may_end=False)
    late = [label for label, has in zip(trainers, arrived) if not has]
    return Stall(phase, f"the gradients of {', '.join(late)}") if late else Stall(phase)


def watch_for_stalls(job: Job, probe: StepProbe) -> StallWatch:
    """Returns the watch of a trainer's progress, for a `with` statement.

    Args:
      job: the job that is trained.
      probe: looks into its steps.
    """
    session = job.cluster_session
    if session:
        # A session that a ps has ended is made anew; the step that it was in is over. A worker
        # waits for its master's session, for which there is a time limit of its own.
        phase = activity.START if session.cluster.is_master else None
        session.session_begins = functools.partial(job.activity.begin, phase)
    cluster = session.cluster if session else None
    labels = [cluster.label_of(*task) for task in cluster.trainers] if cluster else [""]
    return StallWatch(
        job.activity,
        job.config.stall_timeout,
        lambda: look_into_step(job.activity, probe, labels, job.params.place.replica),
        lambda: job.hears_all,
    )
