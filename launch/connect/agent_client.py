"""Asks hosts in parallel: anything, and agents without tasks for checks and cleanup."""

import contextlib
import secrets
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from launch.agent.protocol import Message
from launch.cluster.model import Host
from launch.connect.link import Link, Transport, end
from launch.errors import HostError, below_each_other

T = TypeVar("T")

_LOOK_SECS = 0.1
_AT_ONCE = 8  # an sshd, as of a jump host, drops connections beyond ten that are not logged in yet
_ANSWER_SECS = 120.0
_CLOSE_SECS = 5.0


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
    hosts: Sequence[Host], ask: Callable[[Host], T], *, meanwhile: Callable[[], None] = lambda: None
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


class Questions(contextlib.AbstractContextManager["Questions"]):
    """Asks agents, one on each host, and ends them with its context.

    Args:
      transport: how the launcher reaches the hosts.
      stops: a list to which each signal that asks for the end is added.
    """

    def __init__(self, transport: Transport, stops: Sequence[int]) -> None:
        self._transport, self._stops = transport, stops
        self._links: dict[str, Link] = {}

    def __exit__(self, *exc_info: object) -> None:
        end(self._links.values(), _CLOSE_SECS)

    def ask(self, hosts: Sequence[Host], order: Callable[[Host], Message]) -> Answers[Message]:
        """Asks hosts in parallel; the first question to a host starts its agent.

        A signal closes the connections.

        Args:
          hosts: the hosts.
          order: a function that returns the order for a host.

        Raises:
          SystemExit: a signal came (128 + n).
        """

        def ask_one(host: Host) -> Message:
            if self._stops:
                raise HostError("stopped")
            if host.name not in self._links:
                run_id = f"ask-{secrets.token_hex(4)}"
                self._links[host.name] = self._transport.link(host, run_id, lambda *_: None)
            return self._links[host.name].ask(order(host), _ANSWER_SECS)

        def heed_signals() -> None:
            for link in list(self._links.values()) if self._stops else ():
                link.kill()

        answers = everywhere(hosts, ask_one, meanwhile=heed_signals)
        if self._stops:
            raise SystemExit(128 + self._stops[0])
        return answers


def reap(record: Mapping[str, Any], transport: Transport, stops: Sequence[int]) -> list[str]:
    """Ends what a run has left behind on its hosts, found by its labels, in parallel.

    Signals that ask for the end close the connections, and raise SystemExit (128 + n).

    Args:
      record: the content of the run's `run.json`.
      transport: how the launcher reaches the hosts.
      stops: a list to which each such signal is added.

    Returns:
      A line for each host where something was ended.

    Raises:
      HostError: a host could not be reached, or its containers could not be removed; the other
        hosts were reaped.
    """
    order = {"do": "reap", "run": record["run"], "engine": record.get("engine")}
    hosts = [
        Host(host["name"], host["name"], (), "", host["user"], agent_python=host["agent_python"])
        for host in record["hosts"]
    ]
    with Questions(transport, stops) as questions:
        answers = questions.ask(hosts, lambda _: order)
    for name, answer in answers.found.items():
        if answer["error"] is not None:
            answers.failed[name] = f"{name}: {answer['error']}"
    lines = []
    for name, answer in answers.of_all().items():
        ids = [*map(str, answer["pids"]), *(known[:12] for known in answer["containers"])]
        lines += [f"{name}: ended {len(ids)} ({', '.join(ids)})"] if ids else []
    return lines
