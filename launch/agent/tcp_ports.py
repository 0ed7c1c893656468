"""TCP ports of tasks: chooses free ones, and holds them to the end."""

import contextlib
import errno
import random
import socket
from collections.abc import Iterator
from pathlib import Path

_OUTGOING = "/proc/sys/net/ipv4/ip_local_port_range"
_SERVICES = 10_000  # below are the ports of many services, which may be started later
_MOST_CALLERS = 1024  # that nobody has accepted yet, as in a check


def _family() -> socket.AddressFamily:
    """Returns IPv6, where IPv4 is served, too, as by gRPC's servers; IPv4 without IPv6."""
    try:
        socket.create_server(("", 0), family=socket.AF_INET6, dualstack_ipv6=True).close()
    except (OSError, ValueError):
        return socket.AF_INET
    return socket.AF_INET6


_FAMILY = _family()


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
        with contextlib.suppress(OSError):  # in use, or held by another agent
            held.append(hold_port(port))
    return held


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
    with contextlib.ExitStack() as closing:
        held = closing.enter_context(socket.socket(_FAMILY))
        if _FAMILY == socket.AF_INET6:
            held.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, int(shared))
        held.bind(("", port))
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # lets the task in
        closing.pop_all()
    return held


def _candidates() -> Iterator[int]:
    """Yields the ports that a task may get, the best first, otherwise at random.

    Outgoing connections of any process get ports of a range of their own, so its ports come last.
    """
    low, high = 32_768, 60_999
    with contextlib.suppress(OSError):
        low, high = map(int, Path(_OUTGOING).read_text().split())
    best = [*range(_SERVICES, low), *range(high + 1, 65_536)]
    for ports in best, list(range(max(_SERVICES, low), high + 1)):
        while ports:  # To shuffle all of them would take longer than all else here.
            chosen = random.randrange(len(ports))
            ports[chosen], ports[-1] = ports[-1], ports[chosen]
            yield ports.pop()


def listen(port: int) -> socket.socket:
    """Returns a socket that listens on `port` of all addresses of this host.

    Raises:
      OSError: the port is in use, or not permitted.
    """
    is_dual = _FAMILY == socket.AF_INET6
    try:
        # With SO_REUSEADDR, so that connections of an earlier task in TIME_WAIT prevent no restart.
        return socket.create_server(
            ("", port), family=_FAMILY, backlog=_MOST_CALLERS, dualstack_ipv6=is_dual
        )
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            raise OSError(f"port {port}: {error.strerror}") from None
        raise OSError(
            f"port {port} is in use (ss -ltnp shows by what); end that, or choose another with "
            "`ports:`"
        ) from None
