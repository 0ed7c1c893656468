"""Questions to one host's agent, an answer to each: for checks and for cleaning up."""

import queue
import secrets
from typing import Any

from launch.agent.protocol import Message
from launch.cluster.model import Host
from launch.connect.transport import Transport
from launch.errors import HostError

_ANSWER_SECS = 120.0
_CLOSE_SECS = 5.0


class Conversation:
    """An agent that runs no tasks. Use as a context.

    Args:
      transport: the way to the host.
      host: which one.
    """

    def __init__(self, transport: Transport, host: Host) -> None:
        self._host = host
        self._transport = transport
        self._answers: queue.SimpleQueue[Message] = queue.SimpleQueue()
        self._link = transport.link(host, f"ask-{secrets.token_hex(4)}", self._hear)

    def __enter__(self) -> "Conversation":
        """Starts the agent; HostError if the host cannot be reached."""
        try:
            self._transport.open(self._link, self._host)
        except HostError:
            self._link.close(0)
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._link.send({"do": "end"})
        self._link.close(_CLOSE_SECS)

    def ask(self, order: Message) -> Message:
        """The answer to an order.

        Raises:
          HostError: none came.
        """
        self._link.send(order)
        while True:
            try:
                answer = self._answers.get(timeout=_ANSWER_SECS)
            except queue.Empty:
                raise HostError(f"{self._host.name}: no answer for {_ANSWER_SECS:g} s") from None
            if answer["event"] == "lost":
                raise HostError(f"{self._host.name}: {self._link.why()}")
            if answer["event"] != "hello":
                return answer

    def _hear(self, _: Any, message: Message) -> None:
        self._answers.put(message)
