"""Ports that are chosen for tasks, who can still take them, and listening at them."""

import contextlib
import errno
import os
import socket
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from launch.agent import host_facts, tcp_ports

_HAS_IPV6 = os.path.exists("/proc/net/if_inet6")
needs_ipv6 = pytest.mark.skipif(not _HAS_IPV6, reason="this machine has no IPv6")


@pytest.fixture
def held() -> Iterator[list[socket.socket]]:
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(each) for each in tcp_ports.hold(5)]


def ports_of(held: list[socket.socket]) -> list[int]:
    return [each.getsockname()[1] for each in held]


def use_settings(folder: Path, monkeypatch: pytest.MonkeyPatch, **settings: str) -> None:
    for name, text in settings.items():
        (folder / name).write_text(text)
    monkeypatch.setattr(tcp_ports, "_SETTINGS", str(folder))


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
    assert tcp_ports.why_not(port) is None
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), 5)
    for _ in range(2):  # a task that is started again, too
        with socket.create_server(("", port)):
            assert tcp_ports.is_taken(port)
            assert refusal(port, reuse=True) == errno.EADDRINUSE
            socket.create_connection(("127.0.0.1", port), 5).close()


def test_a_later_agent_holds_a_port_together_with_the_one_before_and_after_it(
    held: list[socket.socket],
) -> None:
    port = held[0].getsockname()[1]
    with tcp_ports.hold_port(port, shared=True):
        held[0].close()
        assert refusal(port, reuse=False) == errno.EADDRINUSE
        assert tcp_ports.why_not(port) is None
        with socket.create_server(("", port)), pytest.raises(OSError, match="in use"):
            tcp_ports.hold_port(port, shared=True)


def test_a_port_that_another_holds_or_uses_is_not_chosen(
    held: list[socket.socket], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = ports_of(held)[:2]
    low, high = sorted((one, two))
    everything_else = f"1-{low - 1},{low + 1}-{high - 1},{high + 1}-65535"
    use_settings(tmp_path, monkeypatch, ip_local_reserved_ports=everything_else)
    assert tcp_ports.hold(1) == []
    held[0].close()
    with socket.create_server(("127.0.0.1", one)):
        assert tcp_ports.hold(1) == []
    with contextlib.ExitStack() as stack:
        found = [stack.enter_context(each) for each in tcp_ports.hold(2)]
        assert ports_of(found) == [one]


def test_services_and_outgoing_connections_come_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_settings(
        tmp_path,
        monkeypatch,
        ip_local_port_range="9995 65000\n",
        ip_local_reserved_ports="65530-65532,65535\n",
        ip_unprivileged_port_start="9990\n",
    )
    ports = list(tcp_ports._candidates())
    assert len(ports) == len(set(ports)) == 65_536 - 9990 - 4
    assert set(ports[:531]) == set(range(65_001, 65_530)) | {65_533, 65_534}
    assert set(ports[531:536]) == {9990, 9991, 9992, 9993, 9994}
    assert {*ports[536:]} == {*range(9995, 65_001)}


@needs_ipv6
def test_a_check_is_answered_over_ipv4_and_ipv6_though_callers_reset_their_connections(
    held: list[socket.socket],
) -> None:
    (port,) = ports_of(held[:1])
    (listening,) = host_facts.answer([port], "token")
    with listening:
        for _ in range(50):
            with socket.create_connection(("127.0.0.1", port), 5) as caller:
                at_once = struct.pack("ii", 1, 0)
                caller.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, at_once)
        targets = [(address, port, "token") for address in ("127.0.0.1", "::1")]
        assert host_facts.dial(targets) == []
