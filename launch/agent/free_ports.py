"""Chooses free ports for tasks, and holds them until the tasks are over."""

import contextlib
import random
import socket
from collections.abc import Iterator, Sequence

from launch.agent import sockets

_SETTINGS = "/proc/sys/net/ipv4"
_SERVICES = 10_000  # below are the ports of many services, which may be started later


def hold(count: int) -> list[socket.socket]:
    """Chooses free TCP ports, and holds them for the tasks that will listen there.

    While a socket of the result is open, no other process gets its port for an outgoing connection,
    and no other agent chooses it. A server with SO_REUSEADDR, as gRPC's are, may listen there.

    Args:
      count: how many ports to choose.

    Returns:
      Open sockets that do not listen, each with another port; fewer than `count` if no more ports
      are free.
    """
    held: list[socket.socket] = []
    for port in _candidates():
        if len(held) == count:
            break
        try:
            held.append(hold_port(port))
        except OSError:  # in use, or held by another agent
            continue
    return held


def hold_with(port: int, held: Sequence[socket.socket]) -> list[socket.socket]:
    """Holds the port of a task whose host had another agent before, which may still hold it, too.

    Args:
      port: the port that the earlier agent has chosen.
      held: the sockets that are open already.

    Returns:
      The sockets with that of the port; without, if another process listens there.
    """
    if port not in (each.getsockname()[1] for each in held):
        with contextlib.suppress(OSError):
            return [*held, hold_port(port, shared=True)]
    return list(held)


def hold_port(port: int, *, shared: bool = False) -> socket.socket:
    """Binds a port, and lets a task listen there.

    Args:
      port: the port.
      shared: whether another agent may hold it, too.

    Returns:
      The open socket, which does not listen.

    Raises:
      OSError: a socket of any process has the port; if `shared`, one that listens.
      OverflowError: it is no port.
    """
    held = sockets.bind(port, reuse=shared)
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # lets the task in
    return held


def _candidates() -> Iterator[int]:
    """Yields every port that is not privileged, the best first, otherwise at random.

    Outgoing connections of any process get ports of a range of their own, so its ports come last.
    Well-known services listen below 10,000; reserved ports belong to services, too.
    """
    low, high = _numbers("ip_local_port_range", (32_768, 60_999))[:2]
    (first,) = _numbers("ip_unprivileged_port_start", (1024,))[:1]
    reserved = _reserved()
    all_ports = [port for port in range(max(first, 1), 65_536) if port not in reserved]
    outside = [port for port in all_ports if not low <= port <= high]
    for tier in (
        [port for port in outside if port >= _SERVICES],
        [port for port in outside if port < _SERVICES],
        [port for port in all_ports if low <= port <= high],
    ):
        random.shuffle(tier)
        yield from tier


def _setting(name: str) -> str:
    try:
        with open(f"{_SETTINGS}/{name}", encoding="ascii") as file:
            return file.read()
    except OSError:
        return ""


def _numbers(name: str, otherwise: Sequence[int]) -> Sequence[int]:
    return [int(word) for word in _setting(name).split()] or otherwise


def _reserved() -> set[int]:
    """Returns the ports that the kernel gives to nobody who does not name them."""
    found: set[int] = set()
    for part in filter(None, _setting("ip_local_reserved_ports").strip().split(",")):
        low, _, high = part.partition("-")
        found.update(range(int(low), int(high or low) + 1))
    return found
