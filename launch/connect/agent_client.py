"""Sends orders to one host's agent and returns its answers, for checks and cleanup."""

import contextlib
import queue
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from launch.agent.protocol import Message
from launch.cluster.model import Host
from launch.connect.everywhere import everywhere
from launch.connect.link import Link, Transport
from launch.errors import HostError

# What to do -> the event that answers it.
_ANSWERS = {"look": "looked", "listen": "listening", "dial": "dialled", "sweep": "swept"}
_UNREAD = 8  # messages; an agent sends one for each order
_ANSWER_SECS = 120.0
_CLOSE_SECS = 5.0
_PATIENCE_SECS = 5.0  # between SIGTERM and SIGKILL


class Closing:
    """The connections of conversations, which a signal closes.

    Args:
      stops: a list to which each signal that asks for the end is added.
    """

    def __init__(self, stops: Sequence[int]) -> None:
        self._stops = stops
        self._links: list[Link] = []

    def note(self, link: Link) -> None:
        """Takes a connection; HostError after a signal."""
        if self._stops:
            raise HostError("stopped")
        self._links.append(link)

    def look(self) -> None:
        """Closes all connections if a signal has come, which ends their conversations."""
        if self._stops:
            for link in list(self._links):
                link.close(0)


@contextlib.contextmanager
def conversation(
    transport: Transport, host: Host, made: Callable[[Link], object] = lambda _: None
) -> Iterator[Callable[[Message], Message]]:
    """Runs an agent without tasks on a host while the context lasts.

    Args:
      transport: how the launcher reaches the host.
      host: the host.
      made: a function to call with the connection; another thread may then close it, which ends the
        conversation.

    Yields:
      A function that sends an order and returns its answer, or raises HostError if none comes.

    Raises:
      HostError: the host cannot be reached.
    """
    answers: queue.Queue[Message] = queue.Queue(_UNREAD)

    def hear(_: Link, message: Message) -> None:
        with contextlib.suppress(queue.Full):  # of an agent that sends more than it is asked for
            answers.put_nowait(message)

    def ask(order: Message) -> Message:
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

    link = transport.link(host, f"ask-{secrets.token_hex(4)}", hear)
    patience_secs = 0.0
    try:
        made(link)
        link.open({"do": "begin", "ports": 0, "mark": None})
        patience_secs = _CLOSE_SECS
        yield ask
    finally:
        link.send({"do": "end"})
        link.close(patience_secs)


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
    closing = Closing(stops)

    def end_on(host: Host) -> list[str]:
        with conversation(transport, host, closing.note) as ask:
            answer = ask(order)
        if answer["error"] is not None:
            raise HostError(f"{host.name}: {answer['error']}")
        return [*map(str, answer["pids"]), *(name[:12] for name in answer["containers"])]

    answers = everywhere(hosts, end_on, meanwhile=closing.look)
    if stops:
        raise SystemExit(128 + stops[0])
    ended = answers.of_all()
    return [f"{name}: ended {len(ids)} ({', '.join(ids)})" for name, ids in ended.items() if ids]
