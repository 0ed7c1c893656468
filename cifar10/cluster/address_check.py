"""Checks that this task can listen at its own address. Standard library only.

TensorFlow's server listens on all interfaces, whatever host its address names. Without this check,
a wrong host would go unnoticed, and the other tasks would wait for this one.
"""

import contextlib
import errno
import socket
import time
from typing import Any

from cifar10.cluster.spec import EVALUATOR, Cluster, split_address
from cifar10.errors import ConfigError

# On Kubernetes, a process may start shortly before its own host name resolves.
RESOLVE_SECS = 10.0
_NO_IPV6 = (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)


def check_own_address(
    cluster: Cluster, check_host: bool, resolve_secs: float = RESOLVE_SECS
) -> None:
    """Checks this task's own address, if the task needs a server.

    Args:
      cluster: the cluster and this process's task in it.
      check_host: whether to check that the host is this machine; the port is always checked.
      resolve_secs: seconds during which to retry if the host does not resolve.

    Raises:
      ConfigError: the host does not resolve or is another machine, or the port is in use or needs
        root.
    """
    if cluster.is_single_process or cluster.task_type == EVALUATOR:
        return
    address = cluster.own.address
    host, _ = split_address(address)
    if check_host and not _is_of_this_machine(_resolve(host, cluster, resolve_secs)):
        raise ConfigError(
            f"{cluster.label} is at {address}, but {host} is no address of this machine; start the "
            "task there, or correct the address; behind forwarded ports give "
            f"--check-address=false (from {cluster.source})"
        )
    check_port(cluster)


def check_port(cluster: Cluster) -> None:
    """Checks that this task's server can have its port; ConfigError if not."""
    try:
        _listen_everywhere(split_address(cluster.own.address)[1])
    except OSError as error:
        reason = {
            errno.EADDRINUSE: "the port is taken; end the process that has it, or choose another",
            errno.EACCES: "ports below 1024 need root; choose one above",
        }.get(error.errno or 0, f"{error.strerror}; choose another port")
        where = f"{cluster.label} cannot listen at {cluster.own.address}"
        raise ConfigError(f"{where}: {reason} (from {cluster.source})") from error


def _resolve(host: str, cluster: Cluster, resolve_secs: float) -> list[tuple[int, Any]]:
    """Returns (family, socket address with port 0) of each address of the host."""
    deadline = time.monotonic() + resolve_secs
    while True:
        try:
            found = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)
        except (socket.gaierror, UnicodeError) as error:
            # UnicodeError: the host is not a valid name, since a part of it is empty or too long.
            if isinstance(error, socket.gaierror) and time.monotonic() < deadline:
                time.sleep(0.5)
                continue
            raise ConfigError(
                f"{cluster.label} is at {cluster.own.address}, but {host} does not resolve on this "
                f"machine ({error}); correct the address, or give --check-address=false "
                f"(from {cluster.source})"
            ) from error
        return [(family, place) for family, _, _, _, place in found]


def _is_of_this_machine(places: list[tuple[int, Any]]) -> bool:
    """Returns whether this machine can bind one of the addresses, at a port the system chooses."""
    for family, place in places:
        with contextlib.suppress(OSError), socket.socket(family, socket.SOCK_STREAM) as tried:
            tried.bind(place)
            return True
    return False


def _listen_everywhere(port: int) -> None:
    """Listens as gRPC does: for IPv6 and IPv4 together, or for IPv4 if there is no IPv6.

    Raises:
      OSError: the port cannot be had.
    """
    if socket.has_dualstack_ipv6():
        try:
            socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True).close()
            return
        except OSError as error:
            if error.errno not in _NO_IPV6:
                raise
    socket.create_server(("", port)).close()
