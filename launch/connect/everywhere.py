"""Calls a function for many hosts in parallel."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Generic, TypeVar

from launch.cluster.model import Host
from launch.errors import HostError, below_each_other

T = TypeVar("T")

_LOOK_SECS = 0.1
_AT_ONCE = 8  # an sshd, as of a jump host, drops connections beyond ten that are not logged in yet


@dataclass(frozen=True)
class Answers(Generic[T]):
    """The results of a function that was called for each host, in the order of the hosts.

    Attributes:
      found: host's name -> the function's result.
      failed: host's name -> the message of the function's HostError.
    """

    found: dict[str, T]
    failed: dict[str, str]

    def of_all(self) -> dict[str, T]:
        """Returns the results of all hosts.

        Raises:
          HostError: the function failed for some hosts; the message has a line for each of them.
        """
        if self.failed:
            raise HostError(below_each_other(self.failed.values()))
        return self.found


def everywhere(
    hosts: Sequence[Host],
    ask: Callable[[Host], T],
    *,
    meanwhile: Callable[[], None] = lambda: None,
) -> Answers[T]:
    """Calls `ask` for all hosts, some at a time in threads; waits until every call has ended.

    Args:
      hosts: hosts with different names.
      ask: a function that returns a host's result, or raises HostError. Any other exception is
        raised here.
      meanwhile: a function to call in this thread ten times a second while calls are running; it
        may make them end early.
    """
    with ThreadPoolExecutor(max_workers=_AT_ONCE) as pool:
        futures = {host.name: pool.submit(ask, host) for host in hosts}
        waiting = set(futures.values())
        while waiting:
            waiting = wait(waiting, timeout=_LOOK_SECS).not_done
            meanwhile()
    answers: Answers[T] = Answers({}, {})
    for name, future in futures.items():
        try:
            answers.found[name] = future.result()
        except HostError as error:
            answers.failed[name] = str(error)
    return answers
