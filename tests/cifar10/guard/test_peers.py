"""Which tasks answer, for how long one has not, and what then happens: with real sockets."""

import contextlib
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from unittest import mock

import pytest

from cifar10.cluster.spec import Task
from cifar10.errors import ConfigError, TrainingError
from cifar10.guard.peers import Mismatch, Peers, Probe
from testbeds.ports import free_ports
from testbeds.process_list import stop_process
from tests.cifar10.answering import WAIT_SECS, answering, refuse, wait_until
from tests.cifar10.forks import Forks

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
        server.wait_until(lambda found: found.out == "serves\n")
        yield f"127.0.0.1:{port}", server.pid


def sockets(pid: int) -> int:
    found = 0
    for path in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # It has been closed meanwhile.
            found += os.readlink(path).startswith("socket:")
    return found


def has_only(pid: int, most: int) -> None:
    """Waits until the server has closed the connections of those who asked."""
    wait_until(lambda: sockets(pid) <= most)


def test_a_tensorflow_server_answers_and_keeps_no_connection(task):
    address, pid = task
    before, probe = sockets(pid), Probe(address)
    assert not probe.is_here
    for _ in range(200):
        assert probe.answers(WAIT_SECS)
    assert probe.is_here
    has_only(pid, before)


def test_a_stopped_process_is_here_but_does_not_answer_until_it_continues(task):
    address, pid = task
    probe = Probe(address)
    assert probe.answers(WAIT_SECS)
    before = sockets(pid)
    stop_process(pid)
    try:
        for _ in range(10):
            assert not probe.answers(0.05)
            assert probe.is_here
    finally:
        os.kill(pid, signal.SIGCONT)
    assert probe.answers(WAIT_SECS)
    assert probe.answers(WAIT_SECS)
    has_only(pid, before)


@pytest.mark.parametrize("said", [None, b"", b"HTTP/1.1 400 Bad Request\r\n\r\n"])
def test_nobody_and_a_server_of_another_kind_do_not_answer(said):
    with socket.create_server(("127.0.0.1", 0)) as server:
        probe = Probe(f"127.0.0.1:{server.getsockname()[1]}")

        def speak() -> None:
            with server.accept()[0] as connection:
                connection.sendall(said)

        speaker = threading.Thread(target=speak)
        if said is None:
            server.close()
        else:
            speaker.start()
        assert not probe.answers(WAIT_SECS)
        assert not probe.is_here
        if said is not None:
            speaker.join()
    assert not Probe("nowhere.invalid:2222").answers(WAIT_SECS)


def task_at(address: str, index: int = 0) -> Task:
    return Task("ps", index, f"ps/{index}", address)


@contextlib.contextmanager
def asking(
    *tasks: Task, timeout_secs: float = 300.0, meet: Callable[[Task], bool] = lambda _: True
) -> Iterator[Peers]:
    peers = Peers(tasks, timeout_secs, meet)
    peers.start()
    yield peers
    peers.stop()


def test_a_task_is_missing_once_its_time_is_over(nobody) -> None:
    peers = Peers([nobody], 0.2, lambda _: True)
    assert peers.missing([nobody]) is None
    time.sleep(0.25)
    line = (
        f"ps/0 ({nobody.address}) has not answered for 0.2 s (--cluster-timeout); start what is "
        "missing again with the same TF_CONFIG or flags, and then this task"
    )
    assert peers.missing([nobody]) == line
    with pytest.raises(TrainingError, match=r"^ps/0 .* has not answered for 0\.2 s"):
        peers.wait_for([nobody])
    peers.stop()  # From now on, nothing is known any more.
    peers.require([nobody])


def test_so_many_tasks_may_be_missing_as_are_not_needed(nobody) -> None:
    with answering() as address:
        both = [nobody, task_at(address, 1)]
        with asking(*both, timeout_secs=1.0) as peers:
            wait_until(lambda: peers.missing([nobody]) is not None)
            for spare, too_few in ((0, True), (1, False), (2, False)):
                assert (peers.missing(both, spare) is not None) == too_few


def test_a_task_that_goes_away_is_missed_and_one_that_comes_back_is_not() -> None:
    with answering() as address:
        task = task_at(address)
        peers = Peers([task], 1.0, lambda _: True)
        peers.start()
        wait_until(lambda: peers.is_here(task))
    wait_until(lambda: peers.missing([task]) is not None)
    with answering(port=int(address.rpartition(":")[2])):
        wait_until(lambda: peers.is_here(task))
        assert peers.missing([task]) is None
        peers.stop()


def test_who_is_silent_is_said_once_and_that_it_answers_again(monkeypatch) -> None:
    monkeypatch.setattr("cifar10.guard.peers._SAY_AFTER_SECS", 0.3)
    monkeypatch.setattr(Peers.silent, "__defaults__", (0.3,))
    with contextlib.ExitStack() as stack:
        with answering() as address:
            task = task_at(address)
            peers = stack.enter_context(asking(task))
            wait_until(lambda: peers.is_here(task))
        wait_until(lambda: bool(peers.silent([task])))
        assert peers.news([]) == []  # It is not needed at the moment.
        silent = f"ps/0 ({address}) does not answer; --cluster-timeout is 300 s"
        assert peers.news([task]) == [silent]
        assert peers.news([task]) == []
        with answering(port=int(address.rpartition(":")[2])):
            peers.wait_for([task])
            assert peers.news([]) == [f"ps/0 ({address}) answers again"]


def test_a_task_counts_only_once_it_was_met() -> None:
    met, asked = threading.Event(), []

    def meet(task: Task) -> bool:
        asked.append(task)
        return met.is_set()

    with answering() as address:
        task = task_at(address)
        with asking(task, meet=meet) as peers:
            wait_until(lambda: len(asked) > 1)
            assert peers.silent([task], 0.0)
            assert peers.is_here(task)
            met.set()
            peers.wait_for([task])
    assert set(asked) == {task}


def test_a_task_of_another_job_is_refused_at_once_unless_enough_others_are_there(nobody) -> None:
    with answering() as address:
        task = task_at(address)
        with asking(nobody, task, meet=refuse) as peers:
            with pytest.raises(ConfigError, match="^ps/0 .* belongs to another job$"):
                peers.wait_for([task])
            peers.require([nobody, task], spare=1)
            with pytest.raises(ConfigError):
                peers.require([nobody, task])


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (Mismatch("--seed is 1, but 2"), "--seed is 1, but 2"),
        (RuntimeError("can't start new thread"), "RuntimeError while it was asked: can't start"),
    ],
    ids=["mismatch", "unexpected"],
)
def test_why_a_task_cannot_be_used_is_said_once_and_named_at_last(capsys, error, said) -> None:
    asked: list[Task] = []

    def fail(task: Task) -> bool:
        asked.append(task)
        raise error

    with answering() as address:
        task = task_at(address)
        with asking(task, timeout_secs=0.5, meet=fail) as peers:
            wait_until(lambda: len(asked) > 2)
            with pytest.raises(
                TrainingError, match=f"^ps/0 .* could not be used for 0.5 s .*: {said}"
            ):
                peers.wait_for([task])
    assert "".join(capsys.readouterr()).count(said) == 1


@pytest.mark.parametrize("in_pod", [False, True])
def test_a_name_that_does_not_resolve_is_said_at_once_but_in_a_pod(
    monkeypatch, capsys, in_pod
) -> None:
    if in_pod:  # there, the names of pods that wait in a queue are not known yet
        monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    asked, answers = threading.Semaphore(0), Probe.answers

    def ask(probe: Probe, secs: float) -> bool:
        asked.release()
        return answers(probe, secs)

    monkeypatch.setattr(Probe, "answers", ask)
    with asking(task_at("nowhere.invalid:2222")):
        for _ in range(3):
            assert asked.acquire(timeout=WAIT_SECS)
    said = capsys.readouterr().out.splitlines()
    assert len(said) == (0 if in_pod else 1)
    for line in said:
        assert line.startswith("ps/0 (nowhere.invalid:2222): ")
        assert line.endswith("; correct the address, or the DNS")


def test_a_task_whose_question_fails_does_not_answer_any_more(monkeypatch) -> None:
    with answering() as address:
        task = task_at(address)
        with asking(task) as peers:
            peers.wait_for([task])
            monkeypatch.setattr(Probe, "answers", mock.Mock(side_effect=MemoryError()))
            wait_until(lambda: peers.silent([task], 0.0) == [task])
            monkeypatch.undo()
            peers.wait_for([task])
