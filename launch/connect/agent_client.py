"""Sends orders to one host's agent and returns its answers, for checks and cleanup."""

import queue
import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from launch.agent.protocol import Message
from launch.cluster.model import Host
from launch.connect.connections import Inbox
from launch.connect.link import Link
from launch.connect.transport import Transport
from launch.errors import HostError

# What to do -> the event that answers it.
_ANSWERS = {"look": "looked", "listen": "listening", "dial": "dialled", "sweep": "swept"}
_UNREAD = 8  # messages; an agent sends one for each order
_ANSWER_SECS = 120.0
_CLOSE_SECS = 5.0


class Closing:
    """The connections of conversations, which a signal closes.

    Args:
      stops: a list to which each signal that asks for the end is added.
    """

    def __init__(self, stops: Sequence[int]) -> None:
        self._stops = stops
        self._links: list[Link] = []

    def note(self, link: Link) -> None:
        """Takes a connection that is about to be opened; HostError after a signal."""
        if self._stops:
            raise HostError("stopped")
        self._links.append(link)

    def look(self) -> None:
        """Closes all connections if a signal has come, which ends their conversations."""
        if self._stops:
            for link in list(self._links):
                link.close(0)


@contextmanager
def conversation(
    transport: Transport, host: Host, made: Callable[[Link], object] = lambda _: None
) -> Iterator[Callable[[Message], Message]]:
    """Runs an agent without tasks on a host while the context lasts.

    Args:
      transport: how the launcher reaches the host.
      host: the host.
      made: a function to call with the connection before it is opened; another thread may then
        close it, which ends the conversation.

    Yields:
      A function that sends an order and returns its answer, or raises HostError if none comes.

    Raises:
      HostError: the host cannot be reached.
    """
    answers: Inbox[Message] = Inbox(_UNREAD)
    run_id = f"ask-{secrets.token_hex(4)}"
    link = transport.link(host, run_id, lambda _, message: answers.put(message))
    made(link)

    def ask(order: Message) -> Message:
        link.send(order)
        try:
            answer = answers.get(timeout=_ANSWER_SECS)
        except queue.Empty:
            raise HostError(f"{host.name}: no answer for {_ANSWER_SECS:g} s") from None
        if answer["event"] == "lost":
            raise HostError(f"{host.name}: {link.why()}")
        if answer["event"] != _ANSWERS[order["do"]]:
            raise HostError(
                f"{host.name}: its agent answered {answer['event']} to {order['do']}"
                f"{': ' + answer['reason'] if 'reason' in answer else ''}"
            )
        return answer

    try:
        transport.open(link, host)
    except HostError:
        answers.close()
        link.close(0)
        raise
    answers.get()  # `hello`, for which `open` has waited
    try:
        yield ask
    finally:
        answers.close()
        link.send({"do": "end"})
        link.close(_CLOSE_SECS)
