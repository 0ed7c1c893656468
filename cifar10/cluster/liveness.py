"""Which tasks of the cluster answer, and for how long one has not. Standard library only."""

import os
import socket
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Callable, Optional

from cifar10.errors import Stopped, TrainingError
from cifar10.host.signals import Stay

_PERIOD_SECS = 1.0  # between two looks at a task
_CONNECT_SECS = 2.0
_SAY_AFTER_SECS = 5.0
_LAST_WORDS_SECS = 2.0  # for the main thread to end by itself


def answers(address: str, timeout_secs: float = _CONNECT_SECS) -> bool:
    """Whether somebody listens at `host:port`."""
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout_secs):
            return True
    except OSError:
        return False


class LivenessMonitor:
    """Looks at tasks again and again, in a thread of its own.

    TensorFlow itself waits for a missing task without a limit, and does not say for which one.

    Args:
      addresses: `host:port` by the task's label, such as `ps/0`.
      timeout_secs: how long a task may be missing.
    """

    def __init__(self, addresses: Mapping[str, str], timeout_secs: float) -> None:
        self._addresses, self._timeout_secs = dict(addresses), timeout_secs
        started = time.monotonic()
        self._seen = dict.fromkeys(self._addresses, started)
        self._here = dict.fromkeys(self._addresses, False)
        self._ended = threading.Event()

    def start(self) -> None:
        """Starts looking; the thread ends with the process."""
        for label in self._addresses:
            threading.Thread(target=self._look_at, args=(label,), daemon=True).start()

    def stop(self) -> None:
        """Stops looking; from now on no task counts as missing."""
        self._ended.set()

    def is_here(self, label: str) -> bool:
        """Whether the task answered when it was last looked at."""
        return self._here[label]

    def missing(self, labels: Sequence[str], at_least: Optional[int] = None) -> Optional[str]:
        """Says which of the tasks have been missing for too long.

        Args:
          labels: the tasks that are needed.
          at_least: how many of them are; None: all.

        Returns:
          A sentence for people; None if nobody is missing for too long.
        """
        now = time.monotonic()
        late = [one for one in labels if now - self._seen[one] > self._timeout_secs]
        gone = [one for one in late if not self._here[one]]  # Looks are a second apart.
        if self._ended.is_set() or len(labels) - len(gone) >= (
            len(labels) if at_least is None else at_least
        ):
            return None
        names = ", ".join(f"{one} ({self._addresses[one]})" for one in gone)
        verb = "has" if len(gone) == 1 else "have"
        return (
            f"{names} {verb} not answered for {self._timeout_secs:g} s (--cluster-timeout); start "
            "what is missing again with the same TF_CONFIG, and then this task"
        )

    def wait_for(
        self, labels: Sequence[str], check: Callable[[], None], say: Callable[[str], None]
    ) -> None:
        """Waits until all of the tasks answer.

        Args:
          labels: the tasks.
          check: is called now and then, and raises what is to end the waiting.
          say: prints a line.

        Raises:
          TrainingError: one of them does not answer in time.
        """
        started, said = time.monotonic(), False
        while absent := [one for one in labels if not self._here[one]]:
            check()
            late = self.missing(absent)
            if late:
                raise TrainingError(late)
            if not said and time.monotonic() - started > _SAY_AFTER_SECS:
                names = ", ".join(f"{one} ({self._addresses[one]})" for one in absent)
                say(f"waiting for {names}")
                said = True
            time.sleep(0.05)

    def end_process_without(
        self,
        labels: Sequence[str],
        at_least: Optional[int] = None,
        is_over: Callable[[], bool] = lambda: False,
    ) -> None:
        """From now on, ends this process with exit code 1 when too many tasks are missing.

        From a thread, since the main thread then waits inside TensorFlow, which nothing can
        interrupt. A run that was stopped like this goes on from its last checkpoint.

        Args:
          labels: the tasks that are needed.
          at_least: how many of them are; None: all.
          is_over: asked when one of them does not answer, whether they may be gone because training
            is over; then the process ends at once, with exit code 0.
        """

        def guard() -> None:
            while not self._ended.wait(_PERIOD_SECS):
                if not all(self._here[one] for one in labels) and is_over():
                    self._end_process("training is over; the others have gone", 0)
                reason = self.missing(labels, at_least)
                if reason:
                    self._end_process(f"training failed: {reason}", 1)

        threading.Thread(target=guard, daemon=True).start()

    def end_process_after(self, stay: Stay) -> None:
        """From now on, ends this process after its stay, from a thread for the same reason."""

        def guard() -> None:
            while not self._ended.wait(_PERIOD_SECS / 4):
                try:
                    stay.check()
                except Stopped as stopped:
                    self._end_process(str(stopped), 128 + stopped.signum)

        threading.Thread(target=guard, daemon=True).start()

    def _end_process(self, message: str, code: int) -> None:
        if self._ended.wait(_LAST_WORDS_SECS):
            return  # The main thread has come to its own end meanwhile.
        print(message, file=sys.stderr, flush=True)
        sys.stdout.flush()
        os._exit(code)

    def _look_at(self, label: str) -> None:
        while not self._ended.is_set():
            self._here[label] = answers(self._addresses[label])
            if self._here[label]:
                self._seen[label] = time.monotonic()
            self._ended.wait(_PERIOD_SECS if self._here[label] else _PERIOD_SECS / 4)
