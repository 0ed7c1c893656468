"""Whether this task can listen at its own address, before TensorFlow tries. Standard library only.

TensorFlow's server listens on all interfaces, whatever host its address names: a wrong host goes
unnoticed by itself, and everyone waits for it.
"""

import contextlib
import errno
import socket
import time
from typing import Any

from cifar10.cluster.spec import EVALUATOR, Cluster, split_address
from cifar10.errors import ConfigError

# On Kubernetes, a process may start a moment before its own name is there.
RESOLVE_SECS = 10.0
_NO_IPV6 = (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)


def check_own_address(
    cluster: Cluster, check_host: bool, resolve_secs: float = RESOLVE_SECS
) -> None:
    """Checks the address of a task that is going to have a server.

    Args:
      cluster: its own task is looked at.
      check_host: whether the host must be one of this machine's; if not, only the port is tried.
      resolve_secs: how long to try again while the host's name does not resolve.

    Raises:
      ConfigError: the host does not resolve or is of another machine, or the port is taken or
        needs root.
    """
    address = cluster.address
    if address is None or cluster.is_single_process or cluster.task_type == EVALUATOR:
        return
    host, port = split_address(address)
    if check_host and not _is_of_this_machine(_resolve(host, cluster, resolve_secs)):
        raise ConfigError(
            f"{cluster.label} is at {address}, but {host} is no address of this machine; start the "
            "task there, or correct the address; behind forwarded ports give "
            f"--check-address=false (from {cluster.source})"
        )
    try:
        _bind_everywhere(port)
    except OSError as error:
        reason = {
            errno.EADDRINUSE: "the port is taken; end the process that has it, or choose another",
            errno.EACCES: "ports below 1024 need root; choose one above",
        }.get(error.errno or 0, f"{error.strerror}; choose another port")
        raise ConfigError(
            f"{cluster.label} cannot listen at {address}: {reason} (from {cluster.source})"
        ) from error


def _resolve(host: str, cluster: Cluster, resolve_secs: float) -> list[tuple[int, Any]]:
    """Returns (family, socket address with port 0) of each address that the host's name has."""
    deadline = time.monotonic() + resolve_secs
    while True:
        try:
            found = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)
        except (socket.gaierror, UnicodeError) as error:
            # UnicodeError: no name at all, since a part of it is empty or too long.
            if isinstance(error, socket.gaierror) and time.monotonic() < deadline:
                time.sleep(0.5)
                continue
            raise ConfigError(
                f"{cluster.label} is at {cluster.address}, but {host} does not resolve on this "
                f"machine ({error}); correct the address, or give --check-address=false "
                f"(from {cluster.source})"
            ) from error
        return [(family, place) for family, _, _, _, place in found]


def _is_of_this_machine(places: list[tuple[int, Any]]) -> bool:
    """Whether any of the addresses can be bound, with a port that the system chooses."""
    for family, place in places:
        with contextlib.suppress(OSError), socket.socket(family, socket.SOCK_STREAM) as tried:
            tried.bind(place)
            return True
    return False


def _bind_everywhere(port: int) -> None:
    """Binds the port as gRPC does: for IPv6 and IPv4 at once, or for IPv4 where that is all.

    Like gRPC, it sets SO_REUSEADDR: connections that ended a moment ago are no obstacle.
    """
    for family in (socket.AF_INET6, socket.AF_INET):
        try:
            with socket.socket(family, socket.SOCK_STREAM) as tried:
                tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                if family == socket.AF_INET6:
                    tried.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
                tried.bind(("", port))
                return
        except OSError as error:
            if family == socket.AF_INET or error.errno not in _NO_IPV6:
                raise
