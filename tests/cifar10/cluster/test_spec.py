"""Cluster: what a task knows of itself and of others; addresses, and its port."""

import socket

import pytest

from cifar10.cluster.spec import Cluster, Task, check_port, split_address
from cifar10.errors import ConfigError

JOBS = {
    "master": ("ip0:2222",),
    "worker": ("ip1:2222", "ip0:2224", "ip1:2224"),
    "ps": ("ip0:2223", "ip1:2223"),
}


def task(task_type: str, task_index: int = 0, **jobs: tuple[str, ...]) -> Cluster:
    return Cluster(jobs or JOBS, task_type, task_index, has_evaluator=False, source="TF_CONFIG")


def test_a_task_has_a_name_and_an_address():
    worker = task("worker", 1).own
    assert worker == Task("worker", 1, "worker/1", "ip0:2224")
    assert str(worker) == "worker/1 (ip0:2224)"


def test_trainers_are_the_master_then_the_workers():
    roles = [trainer.role for trainer in task("ps").trainers]
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
        ("[fe80::1%eth0]:2222", ("fe80::1%eth0", 2222)),
        ("Compose_worker_1:2222", ("compose_worker_1", 2222)),
        *(
            (address, None)
            for address in ("ip0", "[::1]", ":2222", "[ip0]:2222", "ip0:0", "ip0:65536")
        ),
        *((address, None) for address in ("ip0:ssh", "::1:2222", "grpc://ip0:2222", "ip0:1\n")),
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


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.2"])
def test_a_port_that_another_process_has_on_any_interface_is_taken(host):
    with socket.create_server((host, 0)) as server:
        port = server.getsockname()[1]
        with pytest.raises(ConfigError) as refused:
            check_port(task("ps", master=("ip0:2222",), ps=(f"ip1:{port}",)))
        assert str(refused.value) == (
            f"ps/0 cannot listen at ip1:{port}: the port is taken; end the process that has it, or "
            "choose another (from TF_CONFIG)"
        )
        check_port(task("master", master=(f"ip1:{port}",)))  # It needs no server.
        check_port(task("evaluator", master=(f"ip1:{port}",)))  # Nor does it.
    check_port(task("ps", master=("ip0:2222",), ps=(f"ip1:{port}",)))
