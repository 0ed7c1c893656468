"""Sends orders to one host's agent and returns its answers, for checks and cleanup."""

import queue
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from launch.agent.protocol import Message
from launch.cluster.model import Host
from launch.connect.transport import Transport
from launch.errors import HostError

_ANSWER_SECS = 120.0
_CLOSE_SECS = 5.0


@contextmanager
def conversation(transport: Transport, host: Host) -> Iterator[Callable[[Message], Message]]:
    """Runs an agent without tasks on a host while the context lasts.

    Yields:
      A function that sends an order and returns its answer, or raises HostError if none comes.

    Raises:
      HostError: the host cannot be reached.
    """
    answers: queue.SimpleQueue[Message] = queue.SimpleQueue()
    run_id = f"ask-{secrets.token_hex(4)}"
    link = transport.link(host, run_id, lambda _, message: answers.put(message))

    def ask(order: Message) -> Message:
        link.send(order)
        try:
            answer = answers.get(timeout=_ANSWER_SECS)
        except queue.Empty:
            raise HostError(f"{host.name}: no answer for {_ANSWER_SECS:g} s") from None
        if answer["event"] == "lost":
            raise HostError(f"{host.name}: {link.why()}")
        return answer

    try:
        transport.open(link, host)
    except HostError:
        link.close(0)
        raise
    answers.get()  # `hello`, for which `open` has waited
    try:
        yield ask
    finally:
        link.send({"do": "end"})
        link.close(_CLOSE_SECS)
