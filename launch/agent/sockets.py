"""Ports: finds free ones, and the process that has one that is not."""

import errno
import os
import socket
from typing import Optional


def free_ports(count: int) -> list[int]:
    """Returns different ports on which nothing listens."""
    opened = [socket.socket() for _ in range(count)]
    try:
        for each in opened:
            each.bind(("", 0))
        return [int(each.getsockname()[1]) for each in opened]
    finally:
        for each in opened:
            each.close()


def listen(port: int) -> socket.socket:
    """Returns a socket that listens on `port` of every address; OSError if it is taken."""
    listening = socket.socket()
    try:
        # Connections that linger from a task before must not keep its successor from starting.
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(("", port))
        listening.listen(64)
    except OSError:
        listening.close()
        raise
    return listening


def why_not(port: int) -> Optional[str]:
    """Says why no process can listen on a port now; None if one can."""
    try:
        listen(port).close()
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            return f"port {port}: {error.strerror}"
        return f"port {port} is in use{_by(port)}; end that, or choose another with `ports:`"
    return None


def _by(port: int) -> str:
    """Returns ` by pid 812 (python3 server.py)`; empty where this user may not see that."""
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
        except OSError:  # it has ended, or is another user's
            continue
    return ""
