"""Asks agents without tasks on hosts, for checks and cleanup."""

import contextlib
import queue
import secrets
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from launch.agent.protocol import Message
from launch.cluster.model import Host
from launch.connect.everywhere import Answers, everywhere
from launch.connect.link import Link, Transport
from launch.errors import HostError

# What to do -> the event that answers it.
_ANSWERS = {"look": "looked", "dial": "dialled", "sweep": "swept"}
_UNREAD = 8  # messages; an agent sends one for each order
_ANSWER_SECS = 120.0
_CLOSE_SECS = 5.0
_PATIENCE_SECS = 5.0  # between SIGTERM and SIGKILL


class Questions:
    """Asks agents, one on each host, and ends them with its context.

    Args:
      transport: how the launcher reaches the hosts.
      stops: a list to which each signal that asks for the end is added.
    """

    def __init__(self, transport: Transport, stops: Sequence[int]) -> None:
        self._transport, self._stops = transport, stops
        self._links: dict[str, tuple[Link, queue.Queue[Message]]] = {}

    def __enter__(self) -> "Questions":
        return self

    def __exit__(self, *exc_info: object) -> None:
        for link, _ in self._links.values():
            link.send({"do": "end"})
        for link, _ in self._links.values():
            link.close(_CLOSE_SECS)

    def ask(self, hosts: Sequence[Host], order: Callable[[Host], Message]) -> Answers[Message]:
        """Asks hosts in parallel; the first question to a host starts its agent.

        A signal closes the connections.

        Args:
          hosts: the hosts.
          order: a function that returns the order for a host.

        Raises:
          SystemExit: a signal came (128 + n).
        """
        answers = everywhere(
            hosts, lambda host: self._ask(host, order(host)), meanwhile=self._heed_signals
        )
        if self._stops:
            raise SystemExit(128 + self._stops[0])
        return answers

    def _heed_signals(self) -> None:
        if self._stops:
            for link, _ in list(self._links.values()):
                link.close(0)

    def _ask(self, host: Host, order: Message) -> Message:
        if self._stops:
            raise HostError("stopped")
        if host.name not in self._links:
            self._start(host)
        link, answers = self._links[host.name]
        link.send(order)
        try:
            answer = answers.get(timeout=_ANSWER_SECS)
        except queue.Empty:
            raise HostError(f"{host.name}: no answer for {_ANSWER_SECS:g} s") from None
        if answer["event"] == "lost":
            raise HostError(f"{host.name}: {link.why()}")
        if answer["event"] != _ANSWERS[order["do"]]:
            raise HostError(f"{host.name}: its agent answered {answer['event']} to {order['do']}")
        return answer

    def _start(self, host: Host) -> None:
        answers: queue.Queue[Message] = queue.Queue(_UNREAD)

        def hear(_: Link, message: Message) -> None:
            with contextlib.suppress(queue.Full):  # of an agent that sends more than it is asked
                answers.put_nowait(message)

        link = self._transport.link(host, f"ask-{secrets.token_hex(4)}", hear)
        self._links[host.name] = link, answers
        link.open({"do": "begin", "ports": 0, "mark": None})


def sweep(record: Mapping[str, Any], transport: Transport, stops: Sequence[int]) -> list[str]:
    """Ends what a run has left behind on its hosts, found by its marks, in parallel.

    Signals that ask for the end close the connections, and raise SystemExit (128 + n).

    Args:
      record: the content of the run's `run.json`.
      transport: how the launcher reaches the hosts.
      stops: a list to which each such signal is added.

    Returns:
      A line for each host where something was ended.

    Raises:
      HostError: a host could not be reached, or its containers could not be removed; the other
        hosts were swept.
    """
    order = {"do": "sweep", "run": record["run"], "engine": record.get("engine")}
    order["patience_secs"] = _PATIENCE_SECS
    hosts = [
        Host(one["name"], one["name"], (), "", one["user"], agent_python=one["agent_python"])
        for one in record["hosts"]
    ]
    with Questions(transport, stops) as questions:
        answers = questions.ask(hosts, lambda _: order)
    for name, answer in answers.found.items():
        if answer["error"] is not None:
            answers.failed[name] = f"{name}: {answer['error']}"
    return [
        f"{name}: ended {len(ids)} ({', '.join(ids)})"
        for name, answer in answers.of_all().items()
        if (ids := [*map(str, answer["pids"]), *(one[:12] for one in answer["containers"])])
    ]
