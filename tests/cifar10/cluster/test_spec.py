"""Cluster: what a task knows of itself and of others; addresses, and its own with real sockets."""

import contextlib
import socket
from collections.abc import Iterator

import pytest

from cifar10.cluster.spec import Cluster, Task, check_own_address, split_address
from cifar10.errors import ConfigError

JOBS = {
    "master": ("ip0:2222",),
    "worker": ("ip1:2222", "ip0:2224", "ip1:2224"),
    "ps": ("ip0:2223", "ip1:2223"),
}
ELSEWHERE = "192.0.2.1"  # TEST-NET-1 (RFC 5737): no machine has it.


def task(task_type: str, task_index: int = 0, **jobs: tuple[str, ...]) -> Cluster:
    return Cluster(jobs or JOBS, task_type, task_index, has_evaluator=False, source="TF_CONFIG")


def test_a_task_has_a_name_and_an_address():
    worker = task("worker", 1).own
    assert worker == Task("worker", 1, "worker/1", "ip0:2224")
    assert str(worker) == "worker/1 (ip0:2224)"
    assert worker.cpu == "/job:worker/task:1/device:CPU:0"


def test_trainers_are_the_master_then_the_workers():
    roles = [one.role for one in task("ps").trainers]
    assert roles == ["master/0", "worker/0", "worker/1", "worker/2"]


def test_trainers_on_one_host_share_it_and_ps_do_not_count():
    shares = [task("worker", index).host_share for index in range(3)]
    assert [task("master").host_share, *shares] == [(0, 2), (0, 2), (1, 2), (1, 2)]
    assert task("ps", 1).host_share == task("evaluator").host_share == (0, 1)


@pytest.mark.parametrize(
    ("address", "parts"),
    [
        ("ip0:2222", ("ip0", 2222)),
        ("[::1]:2222", ("::1", 2222)),
        ("Compose_worker_1:2222", ("compose_worker_1", 2222)),
        *((one, None) for one in ("ip0", "[::1]", ":2222", "[ip0]:2222", "ip0:0", "ip0:65536")),
        *((one, None) for one in ("ip0:ssh", "::1:2222", "grpc://ip0:2222", "ip0:1\n")),
    ],
)
def test_an_address_is_host_and_port(address, parts):
    if parts:
        assert split_address(address) == parts
        return
    with pytest.raises(ConfigError) as refusal:
        split_address(address, "worker/1")
    assert str(refusal.value) == (
        f"worker/1 must be host:port, got {address!r}; write it like ip0:2222 or [::1]:2222, with "
        "a port from 1 to 65535"
    )


def ps_at(address: str) -> Cluster:
    return task("ps", master=("ip0:2222",), ps=(address,))


def refusal(address: str) -> str:
    with pytest.raises(ConfigError) as refused:
        check_own_address(ps_at(address), check_host=True, resolve_secs=0.0)
    message = str(refused.value)
    assert "\n" not in message
    assert message.endswith(" (from TF_CONFIG)")
    return message


@contextlib.contextmanager
def listening(host: str) -> Iterator[int]:
    """Yields the port of a server on that host, which listens as gRPC's do."""
    with socket.create_server((host, 0)) as server:
        yield server.getsockname()[1]


@pytest.fixture
def free_port() -> int:
    with listening("127.0.0.1") as port:
        return port


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1"])
def test_a_free_port_of_this_machine_is_fine(host, free_port):
    check_own_address(ps_at(f"{host}:{free_port}"), check_host=True)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.2"])
def test_a_port_that_another_process_has_on_any_interface_is_taken(host):
    with listening(host) as port:
        assert refusal(f"127.0.0.1:{port}") == (
            f"ps/0 cannot listen at 127.0.0.1:{port}: the port is taken; end the process that has "
            "it, or choose another (from TF_CONFIG)"
        )


@pytest.mark.parametrize(
    ("host", "why"),
    [
        (ELSEWHERE, "is no address of this machine; start the task there, or correct the address"),
        ("nowhere.invalid", "does not resolve on this machine ("),
        ("a..b", "does not resolve on this machine ("),
    ],
)
def test_another_machine_is_refused_unless_ports_are_forwarded(host, why, free_port):
    address = f"{host}:{free_port}"
    refused = refusal(address)
    assert refused.startswith(f"ps/0 is at {address}, but {host} {why}")
    assert "behind forwarded ports give --check-address=false" in refused
    check_own_address(ps_at(address), check_host=False)


def test_a_task_without_a_server_needs_no_address_of_its_own():
    check_own_address(task("evaluator", master=(f"{ELSEWHERE}:1",)), check_host=True)
    check_own_address(task("master", master=(f"{ELSEWHERE}:1",)), check_host=True)
