"""Runs replicas of a test in threads."""

import contextlib
import threading
from collections.abc import Iterator
from typing import Any, Callable, Optional

from cifar10.step.params import Replication

WAIT_SECS = 60.0  # time limit for a replica


def place(replica: int, aggregate: Optional[int] = 2, num_replicas: int = 2) -> Replication:
    """Returns how one of several processes takes part; the variables are on this machine's CPU."""
    return Replication(("/cpu:0",), ("/cpu:0",), "", 1, num_replicas, replica, aggregate)


@contextlib.contextmanager
def at_the_same_time(work: Callable[[], Any]) -> Iterator[threading.Event]:
    """Runs `work` in a thread; yields an event that is set at its end, and then waits for it."""
    ended, errors = threading.Event(), []

    def run() -> None:
        try:
            work()
        except BaseException as error:  # Raised below, in the test's own thread.
            errors.append(error)
        finally:
            ended.set()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    yield ended
    thread.join(WAIT_SECS)
    assert ended.is_set(), "the other replica still waits"
    if errors:
        raise errors[0]
