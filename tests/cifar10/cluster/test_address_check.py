"""A task's own address, with real sockets: whether it can listen there."""

import contextlib
import pathlib
import socket
import subprocess
import sys
from collections.abc import Iterator

import pytest

from cifar10.cluster.address_check import check_own_address
from cifar10.cluster.spec import Cluster
from cifar10.errors import ConfigError

# TEST-NET-1 (RFC 5737): no machine has it.
ELSEWHERE = "192.0.2.1"


def ps_at(address: str) -> Cluster:
    jobs = {"master": ("ip0:2222",), "ps": (address,)}
    return Cluster(jobs, "ps", 0, has_evaluator=False, source="TF_CONFIG")


def refusal(address: str) -> str:
    with pytest.raises(ConfigError) as refused:
        check_own_address(ps_at(address), check_host=True, resolve_secs=0.0)
    message = str(refused.value)
    assert "\n" not in message
    assert message.endswith(" (from TF_CONFIG)")
    return message


@contextlib.contextmanager
def listening(host: str) -> Iterator[socket.socket]:
    """A server on a free port of that host, listening as gRPC's do."""
    with socket.socket() as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        server.bind((host, 0))
        server.listen()
        yield server


def port_of(server: socket.socket) -> int:
    port: int = server.getsockname()[1]
    return port


@pytest.fixture
def free_port() -> int:
    with listening("127.0.0.1") as server:
        return port_of(server)


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1"])
def test_a_free_port_of_this_machine_is_fine(host, free_port):
    check_own_address(ps_at(f"{host}:{free_port}"), check_host=True)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.2"])
def test_a_port_that_another_process_has_on_any_interface_is_taken(host):
    with listening(host) as server:
        port = port_of(server)
        assert refusal(f"127.0.0.1:{port}") == (
            f"ps/0 cannot listen at 127.0.0.1:{port}: the port is taken; end the process that has "
            "it, or choose another (from TF_CONFIG)"
        )


def test_an_address_of_another_machine_is_refused(free_port):
    assert refusal(f"{ELSEWHERE}:{free_port}") == (
        f"ps/0 is at 192.0.2.1:{free_port}, but 192.0.2.1 is no address of this machine; start the "
        "task there, or correct the address; behind forwarded ports give --check-address=false "
        "(from TF_CONFIG)"
    )


@pytest.mark.parametrize("host", ["nowhere.invalid", "a..b"])
def test_a_host_that_does_not_resolve_is_refused(host, free_port):
    refused = refusal(f"{host}:{free_port}")
    assert refused.startswith(f"ps/0 is at {host}:{free_port}, but {host} does not resolve on this")
    assert "--check-address=false" in refused


def test_behind_forwarded_ports_the_host_does_not_matter(free_port):
    for host in (ELSEWHERE, "nowhere.invalid"):
        check_own_address(ps_at(f"{host}:{free_port}"), check_host=False)


def test_a_task_without_a_server_needs_no_address_of_its_own():
    jobs = {"master": (f"{ELSEWHERE}:1",), "ps": (f"{ELSEWHERE}:2",)}
    evaluator = Cluster(jobs, "evaluator", 0, True, "TF_CONFIG", f"{ELSEWHERE}:3")
    check_own_address(evaluator, check_host=True)
    check_own_address(Cluster(jobs, "evaluator", 0, True, "TF_CONFIG"), check_host=True)
    alone = Cluster({"master": (f"{ELSEWHERE}:1",)}, "master", 0, False, "TF_CONFIG")
    check_own_address(alone, check_host=True)


def _first_unprivileged_port() -> int:
    path = pathlib.Path("/proc/sys/net/ipv4/ip_unprivileged_port_start")
    return int(path.read_text()) if path.exists() else 1024


@pytest.mark.skipif(_first_unprivileged_port() <= 1, reason="every port is anybody's here")
def test_a_port_that_needs_root_is_refused(root):
    code = """if True:
        import encodings.idna, os  # The codec loads late, and from a folder that may be root's.
        from cifar10.cluster.spec import Cluster
        from cifar10.cluster.address_check import check_own_address
        if os.geteuid() == 0:
            os.setuid(65534)
        jobs = {"master": ("ip0:2222",), "ps": ("127.0.0.1:1",)}
        check_own_address(Cluster(jobs, "ps", 0, False, "TF_CONFIG"), check_host=True)
    """
    ended = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True)
    assert ended.returncode == 1
    assert ended.stderr.splitlines()[-1] == (
        "cifar10.errors.ConfigError: ps/0 cannot listen at 127.0.0.1:1: ports below 1024 need "
        "root; choose one above (from TF_CONFIG)"
    )
