"""Listening on ports: at which addresses, and who else has a port."""

import errno
import os
import socket
import struct

import pytest

from launch.agent import host_facts, sockets

_HAS_IPV6 = os.path.exists("/proc/net/if_inet6")
needs_ipv6 = pytest.mark.skipif(not _HAS_IPV6, reason="this machine has no IPv6")


def free_port() -> int:
    with socket.create_server(("", 0)) as server:
        port: int = server.getsockname()[1]
        return port


@needs_ipv6
def test_a_check_is_answered_over_ipv4_and_ipv6() -> None:
    port = free_port()
    for one in host_facts.answer([port], "token"):
        with one:
            targets = [(address, port, "token") for address in ("127.0.0.1", "::1")]
            assert host_facts.dial(targets) == []


def test_callers_that_reset_the_connection_leave_the_answer_to_others() -> None:
    port = free_port()
    (listening,) = host_facts.answer([port], "token")
    with listening:
        for _ in range(50):
            with socket.create_connection(("127.0.0.1", port), 5) as caller:
                at_once = struct.pack("ii", 1, 0)
                caller.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, at_once)
        assert host_facts.dial([("127.0.0.1", port, "token")]) == []


@needs_ipv6
def test_a_port_of_a_server_that_has_ipv6_only_is_taken() -> None:
    with socket.create_server(("::", 0), family=socket.AF_INET6) as server:
        port = server.getsockname()[1]
        assert sockets.is_taken(port)
        why = sockets.why_not(port)
        assert why is not None
        assert why.startswith(f"port {port} is in use")
    assert sockets.why_not(port) is None


def test_a_machine_without_ipv6_listens_on_ipv4(monkeypatch: pytest.MonkeyPatch) -> None:
    bind = sockets._bind

    def without_ipv6(family: int, port: int, reuse: bool) -> socket.socket:
        if family == socket.AF_INET6:
            raise OSError(errno.EAFNOSUPPORT, "Address family not supported by protocol")
        return bind(family, port, reuse)

    monkeypatch.setattr(sockets, "_bind", without_ipv6)
    with sockets.listen(free_port()) as listening:
        assert listening.family == socket.AF_INET
        socket.create_connection(("127.0.0.1", listening.getsockname()[1]), 5).close()
