"""TCP ports of tasks: chooses free ones, holds them to the end, and says who uses one."""

import contextlib
import errno
import os
import random
import socket
from collections.abc import Iterator, Sequence
from typing import Optional

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
    held = bind(port, reuse=shared)
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


_NO_IPV6 = (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)


class PortTaken(OSError):
    """Another process listens on a port; the message names it if it may."""


def bind(port: int, *, reuse: bool) -> socket.socket:
    """Binds a port as a gRPC server does: for IPv6 and IPv4, or for IPv4 if there is no IPv6.

    Args:
      port: the port.
      reuse: whether other sockets that allow it, too, and do not listen may have the port.

    Returns:
      The open socket, which does not listen.

    Raises:
      OSError: another socket has the port, or it is not permitted.
      OverflowError: it is no port.
    """
    try:
        return _bind(socket.AF_INET6, port, reuse)
    except OSError as error:
        if error.errno not in _NO_IPV6:
            raise
    return _bind(socket.AF_INET, port, reuse)


def listen(port: int) -> socket.socket:
    """Returns a socket that listens on `port` of all addresses of this host.

    Raises:
      OSError: the port is in use, or not permitted.
    """
    # Connections of an earlier task in TIME_WAIT must not prevent a restart.
    listening = bind(port, reuse=True)
    try:
        listening.listen(64)
    except OSError:
        listening.close()
        raise
    return listening


def why_not(port: int) -> Optional[str]:
    """Returns why the port is not available to listen on; None if it is."""
    try:
        listen(port).close()
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            return f"port {port}: {error.strerror}"
        return f"port {port} is in use{_by(port)}; end that, or choose another with `ports:`"
    return None


def is_taken(port: int) -> bool:
    """Returns whether another process listens on the port."""
    try:
        listen(port).close()
    except OSError as error:
        return error.errno == errno.EADDRINUSE
    return False


def _bind(family: int, port: int, reuse: bool) -> socket.socket:
    bound = socket.socket(family)
    try:
        if family == socket.AF_INET6:
            bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, int(reuse))
        bound.bind(("", port))
    except BaseException:
        bound.close()
        raise
    return bound


def _by(port: int) -> str:
    """Returns text such as ` by pid 812 (python3 server.py)`; empty if no such process is found."""
    inodes = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            with open(table, encoding="ascii") as file:
                rows = [line.split() for line in file][1:]
        except OSError:
            continue
        inodes |= {
            f"socket:[{row[9]}]"
            for row in rows
            if row[3] == "0A" and int(row[1].rsplit(":", 1)[1], 16) == port
        }
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            fds = {os.readlink(f"/proc/{pid}/fd/{fd}") for fd in os.listdir(f"/proc/{pid}/fd")}
            if fds & inodes:
                with open(f"/proc/{pid}/cmdline", "rb") as file:
                    words = file.read().replace(b"\0", b" ").decode(errors="replace").strip()
                return f" by pid {pid} ({words[:60]})"
        except OSError:  # the process has ended, or belongs to another user
            continue
    return ""
