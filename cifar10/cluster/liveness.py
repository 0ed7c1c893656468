"""Monitors which tasks of the cluster answer. Standard library only."""

import dataclasses
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Callable, Optional

from cifar10.cluster.probe import Probe
from cifar10.errors import ConfigError, TrainingError, UserError

_PERIOD_SECS = 1.0  # Time between two checks of a task that answers.
_ANSWER_SECS = 2.0
_SAY_AFTER_SECS = 5.0


def answers(address: str, timeout_secs: float = _ANSWER_SECS) -> bool:
    """Returns whether a TensorFlow server at `host:port` answers."""
    probe = Probe(address)
    try:
        return probe.answers(timeout_secs)
    finally:
        probe.close()


@dataclasses.dataclass
class _Task:
    """A monitored task.

    Attributes:
      address: its `host:port`.
      seen: the time of its latest answer (`time.monotonic`); at first, when monitoring began.
      answered: whether it answered the latest question.
      is_here: whether its process exists, though it may hang.
      wrong: why it must not be used, if the process that is there belongs to another job; else
        None.
    """

    address: str
    seen: float
    answered: bool = False
    is_here: bool = False
    wrong: Optional[str] = None


class LivenessMonitor:
    """Checks periodically whether tasks answer, in a thread for each task.

    TensorFlow itself waits for a missing task without a limit and does not say which one it is. It
    also waits for a task that hangs: one that was stopped by SIGSTOP, or whose machine swaps.

    Args:
      addresses: `host:port` of the tasks by label, such as `ps/0`.
      timeout_secs: seconds for which a task may fail to answer.
      meet: function called with the label of a task that begins to answer, in the task's thread. It
        returns whether the task may be used, or raises ConfigError if it belongs to another job.
        The task does not count as answering until it returns True.

    Attributes:
      stopped: set once `stop` was called.
    """

    def __init__(
        self,
        addresses: Mapping[str, str],
        timeout_secs: float,
        meet: Callable[[str], bool] = lambda _: True,
    ) -> None:
        self._meet = meet
        self._timeout_secs, started = timeout_secs, time.monotonic()
        self._tasks = {label: _Task(address, started) for label, address in addresses.items()}
        self.stopped = threading.Event()

    def start(self) -> None:
        """Starts the checks, in daemon threads."""
        for label in self._tasks:
            threading.Thread(target=self._look_at, args=(label,), daemon=True).start()

    def stop(self) -> None:
        """Stops the checks; from then on no task counts as missing."""
        self.stopped.set()

    def refuse_wrong(self, labels: Sequence[str]) -> None:
        """Raises ConfigError if one of the tasks belongs to another job."""
        wrong = self.wrong(labels)
        if wrong:
            raise ConfigError(wrong)

    def wrong(self, labels: Sequence[str], at_least: Optional[int] = None) -> Optional[str]:
        """Describes a task of another job; None if enough tasks, by default all, may be of ours."""
        found = [wrong for one in labels if (wrong := self._tasks[one].wrong)]
        is_enough = at_least is not None and len(labels) - len(found) >= at_least
        return found[0] if found and not is_enough else None

    def is_here(self, label: str) -> bool:
        """Returns whether the task's process existed at the latest check, though it may hang."""
        return self._tasks[label].is_here

    def hangs(self, label: str, secs: float) -> bool:
        """Returns whether the task's process exists, but has not answered for so many seconds."""
        return self._tasks[label].is_here and self.is_silent(label, secs)

    def is_silent(self, label: str, secs: float = _SAY_AFTER_SECS) -> bool:
        """Returns whether the task has not answered for so many seconds, whatever the reason.

        After `stop`, nothing is known any more, and no task is.
        """
        task = self._tasks[label]
        is_late = not task.answered and time.monotonic() - task.seen > secs
        return is_late and not self.stopped.is_set()

    def say_who_is_silent(
        self,
        labels: Sequence[str],
        say: Callable[[str], None],
        when: Callable[[], bool] = lambda: True,
    ) -> None:
        """Starts a thread that says which tasks do not answer, and which ones answer again.

        Args:
          labels: labels of the tasks.
          say: function that prints a line.
          when: function that returns whether a silent task matters at the moment.
        """

        def report() -> None:
            silent: set[str] = set()
            while not self.stopped.wait(_PERIOD_SECS / 4):
                for label in labels:
                    if label in silent and self._tasks[label].answered:
                        silent.discard(label)
                        say(f"{self._with_addresses([label])} answers again")
                    elif label not in silent and self.is_silent(label) and when():
                        silent.add(label)
                        say(
                            f"{self._with_addresses([label])} does not answer; --cluster-timeout "
                            f"is {self._timeout_secs:g} s"
                        )

        threading.Thread(target=report, daemon=True).start()

    def missing(
        self,
        labels: Sequence[str],
        at_least: Optional[int] = None,
        timeout_secs: Optional[float] = None,
    ) -> Optional[str]:
        """Describes the tasks that have not answered for longer than the timeout.

        Args:
          labels: labels of the tasks to check.
          at_least: number of these tasks that are needed; None: all.
          timeout_secs: seconds; None: the timeout of this monitor.

        Returns:
          A message for the user; None if enough tasks remain, or after `stop`.
        """
        timeout_secs = self._timeout_secs if timeout_secs is None else timeout_secs
        now = time.monotonic()
        late = [one for one in labels if now - self._tasks[one].seen > timeout_secs]
        # A timeout may be shorter than the time between checks: a task that answers is not late.
        gone = [one for one in late if not self._tasks[one].answered]
        if self.stopped.is_set() or len(labels) - len(gone) >= (
            len(labels) if at_least is None else at_least
        ):
            return None
        names = self._with_addresses(gone)
        verb = "has" if len(gone) == 1 else "have"
        return (
            f"{names} {verb} not answered for {timeout_secs:g} s (--cluster-timeout); start "
            "what is missing again with the same TF_CONFIG or flags, and then this task"
        )

    def wait_for(
        self, labels: Sequence[str], check: Callable[[], None], say: Callable[[str], None]
    ) -> None:
        """Waits until all of the tasks answer.

        Args:
          labels: labels of the tasks.
          check: function called repeatedly meanwhile; an exception that it raises ends the wait.
          say: function that prints a line.

        Raises:
          ConfigError: a task belongs to another job.
          TrainingError: a task has not answered within the timeout.
        """
        started, said = time.monotonic(), False
        while absent := [one for one in labels if not self._tasks[one].answered]:
            check()
            self.refuse_wrong(absent)
            late = self.missing(absent)
            if late:
                raise TrainingError(late)
            if not said and time.monotonic() - started > _SAY_AFTER_SECS:
                say(f"waiting for {self._with_addresses(absent)}")
                said = True
            time.sleep(0.05)

    def _with_addresses(self, labels: Sequence[str]) -> str:
        return ", ".join(f"{one} ({self._tasks[one].address})" for one in labels)

    def _look_at(self, label: str) -> None:
        task = self._tasks[label]
        probe = Probe(task.address)
        while not self.stopped.is_set():
            answered = probe.answers(_ANSWER_SECS)
            task.is_here = probe.is_here
            if not task.is_here:
                task.wrong = None  # What was said of a process that has ended is not true any more.
            if answered and not task.answered:
                answered = self._may_be_used(label)
            task.answered = answered
            if answered:
                task.seen = time.monotonic()
            self.stopped.wait(_PERIOD_SECS if answered else _PERIOD_SECS / 4)
        probe.close()

    def _may_be_used(self, label: str) -> bool:
        """Asks a task that begins to answer which job it belongs to."""
        task = self._tasks[label]
        try:
            may_be_used = self._meet(label)
        except UserError as error:
            task.wrong = str(error)
            return False
        task.wrong = None  # It may have been another process that had to be refused.
        return may_be_used
