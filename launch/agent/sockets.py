"""Listens on ports, and finds the process that uses a port."""

import errno
import os
import socket
from typing import Optional

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
