"""Asks many hosts the same question at the same time."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Generic, Optional, TypeVar

from launch.cluster.model import Host
from launch.errors import HostError, below_each_other

T = TypeVar("T")

_LOOK_SECS = 0.1


@dataclass(frozen=True)
class Answers(Generic[T]):
    """What hosts said, by their names, in the order in which they were given.

    Attributes:
      found: host name -> its answer.
      failed: host name -> why it gave no answer.
    """

    found: dict[str, T]
    failed: dict[str, str]

    def of_all(self) -> dict[str, T]:
        """Returns the answers of all hosts; HostError with every failure if some gave none."""
        if self.failed:
            raise HostError(below_each_other(self.failed.values()))
        return self.found


def everywhere(
    hosts: Sequence[Host],
    ask: Callable[[Host], T],
    *,
    at_once: int = 64,
    meanwhile: Optional[Callable[[], None]] = None,
) -> Answers[T]:
    """Asks all hosts side by side, a thread each, and waits until every one has answered.

    Args:
      hosts: hosts with different names.
      ask: returns a host's answer, or raises HostError if there is none. Any other error is raised
        here.
      at_once: the largest number of hosts that are asked at the same time.
      meanwhile: a function to call in this thread ten times a second while answers are missing; it
        may make them end early.
    """
    with ThreadPoolExecutor(max_workers=at_once) as pool:
        futures = {host.name: pool.submit(ask, host) for host in hosts}
        waiting = set(futures.values())
        while meanwhile is not None and waiting:
            waiting = wait(waiting, timeout=_LOOK_SECS).not_done
            meanwhile()
    answers: Answers[T] = Answers({}, {})
    for name, future in futures.items():
        try:
            answers.found[name] = future.result()
        except HostError as error:
            answers.failed[name] = str(error)
    return answers
