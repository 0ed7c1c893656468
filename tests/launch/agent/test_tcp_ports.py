"""Ports that are chosen for tasks, who can still take them, and listening at them."""

import contextlib
import errno
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from launch.agent import host_facts, tcp_ports


@pytest.fixture
def held() -> Iterator[list[socket.socket]]:
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(each) for each in tcp_ports.hold(5)]


def ports_of(held: list[socket.socket]) -> list[int]:
    return [each.getsockname()[1] for each in held]


def refusal(port: int, *, reuse: bool) -> int:
    """The error of a server that is to listen at that port; 0 if it can."""
    with socket.socket() as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, int(reuse))
        try:
            server.bind(("", port))
            server.listen()
        except OSError as error:
            return error.errno or 0
    return 0


def test_ports_are_distinct_random_and_no_outgoing_connection_can_have_them(
    held: list[socket.socket],
) -> None:
    low, high = map(int, Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split())
    ports = ports_of(held)
    assert len(set(ports)) == 5
    assert all(10_000 <= port < low or high < port < 65_536 for port in ports)
    for each in held:
        each.close()
    with contextlib.ExitStack() as stack:
        again = [stack.enter_context(each) for each in tcp_ports.hold(5)]
        assert ports_of(again) != ports


def test_the_task_can_listen_at_a_held_port_and_another_server_cannot(
    held: list[socket.socket],
) -> None:
    port = held[0].getsockname()[1]
    assert refusal(port, reuse=False) == errno.EADDRINUSE
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), 5)
    for _ in range(2):  # a task that is started again, too
        with socket.create_server(("", port)):
            assert refusal(port, reuse=True) == errno.EADDRINUSE
            socket.create_connection(("127.0.0.1", port), 5).close()


def test_a_later_agent_holds_a_port_together_with_the_one_before_and_after_it(
    held: list[socket.socket],
) -> None:
    port = held[0].getsockname()[1]
    with tcp_ports.hold_port(port, shared=True):
        held[0].close()
        assert refusal(port, reuse=False) == errno.EADDRINUSE
        with socket.create_server(("", port)), pytest.raises(OSError, match="in use"):
            tcp_ports.hold_port(port, shared=True)


def test_a_port_that_another_holds_or_uses_is_not_chosen(
    held: list[socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = ports_of(held)[:2]
    monkeypatch.setattr(tcp_ports, "_candidates", lambda: [first, second])
    assert tcp_ports.hold(1) == []
    held[0].close()
    with socket.create_server(("127.0.0.1", first)):
        assert tcp_ports.hold(1) == []
    with contextlib.ExitStack() as stack:
        found = [stack.enter_context(each) for each in tcp_ports.hold(2)]
        assert ports_of(found) == [first]


def test_a_check_finds_ports_that_listen_over_ipv4_and_ipv6(held: list[socket.socket]) -> None:
    first, second = ports_of(held)[:2]
    addresses = ["127.0.0.1", *(["::1"] if os.path.exists("/proc/net/if_inet6") else [])]
    with tcp_ports.listen(first):
        assert host_facts.unreached([(address, first) for address in addresses]) == []
        with pytest.raises(OSError, match=f"^port {first} is in use "):
            tcp_ports.listen(first)
    assert host_facts.unreached([("127.0.0.1", second)]) == [
        ("127.0.0.1", second, "connection refused")
    ]
