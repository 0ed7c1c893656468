"""What a probe takes for an answer, of TensorFlow's servers and of others."""

import os
import signal
import socket
import threading
import time
from collections.abc import Iterator
from concurrent import futures
from pathlib import Path

import grpc
import pytest

from cifar10.cluster.probe import Probe
from testbeds.ports import free_ports
from testbeds.process_list import stop_process
from tests.cifar10.forks import Forks

SECS = 30.0
SERVER = """
import sys
import tensorflow.compat.v1 as tf

server = tf.distribute.Server(tf.train.ClusterSpec({"ps": [sys.argv[1]]}), "ps", 0)
print("serves", flush=True)
server.join()
"""


@pytest.fixture(scope="module")
def task(forks: Forks) -> Iterator[tuple[str, int]]:
    """The address and the process of a TensorFlow server."""
    (port,) = free_ports(1)
    with forks.started_code(SERVER, f"127.0.0.1:{port}") as server:
        server.wait_until(lambda one: one.out == "serves\n")
        yield f"127.0.0.1:{port}", server.pid


def sockets(pid: int) -> int:
    names = (os.readlink(one) for one in Path(f"/proc/{pid}/fd").iterdir() if one.is_symlink())
    return sum(name.startswith("socket:") for name in names)


def test_a_tensorflow_server_answers_and_keeps_no_connection(task):
    address, pid = task
    before, probe = sockets(pid), Probe(address)
    assert not probe.is_here
    for _ in range(200):
        assert probe.answers(SECS)
    assert probe.is_here
    until = time.monotonic() + SECS
    while sockets(pid) > before:
        assert time.monotonic() < until, "the server has not closed the connections"
        time.sleep(0.01)


def test_a_stopped_process_is_here_but_does_not_answer_until_it_continues(task):
    address, pid = task
    probe = Probe(address)
    assert probe.answers(SECS)
    before = sockets(pid)
    stop_process(pid)
    try:
        for _ in range(10):
            assert not probe.answers(0.05)
            assert probe.is_here
    finally:
        os.kill(pid, signal.SIGCONT)
    assert probe.answers(SECS)
    assert probe.answers(SECS)
    until = time.monotonic() + SECS
    while sockets(pid) > before:
        assert time.monotonic() < until, "the server has not closed the connections"
        time.sleep(0.01)


@pytest.mark.parametrize("host", ["127.0.0.1", "[::1]"])
def test_a_grpc_server_answers_and_none_does_after_its_end(host):
    server = grpc.server(futures.ThreadPoolExecutor(1))
    try:
        port = server.add_insecure_port(f"{host}:0")
    except RuntimeError as error:
        pytest.skip(f"{host}: {error}")
    server.start()
    probe = Probe(f"{host}:{port}")
    assert probe.answers(SECS)
    server.stop(0).wait(SECS)
    assert not probe.answers(SECS)
    assert not probe.is_here


def test_nobody_and_an_unknown_name_do_not_answer():
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        probe = Probe(f"127.0.0.1:{nobody.getsockname()[1]}")
        assert not probe.answers(SECS)
        assert not probe.is_here
    assert not Probe("nowhere.invalid:2222").answers(SECS)


@pytest.mark.parametrize(
    "said",
    [b"HTTP/1.1 400 Bad Request\r\n\r\n", b""],
    ids=["a web server", "nothing, and it hangs up"],
)
def test_a_server_of_another_kind_does_not_answer(said):
    with socket.create_server(("127.0.0.1", 0)) as server:

        def speak() -> None:
            with server.accept()[0] as connection:
                connection.sendall(said)

        speaker = threading.Thread(target=speak)
        speaker.start()
        probe = Probe(f"127.0.0.1:{server.getsockname()[1]}")
        assert not probe.answers(SECS)
        assert not probe.is_here
        speaker.join()
