"""All hosts are asked at once, and a slow host does not delay the others' answers."""

import threading
import time

import pytest

from launch.cluster.model import Host
from launch.connect.everywhere import everywhere
from launch.errors import HostError

HOSTS = [Host(name, name, (), "/data") for name in ("node0", "node1", "node2")]


def name_of(host: Host) -> str:
    if host.name == "node1":
        raise HostError("node1: it is down")
    return host.name.upper()


def test_every_answer_and_every_failure_has_its_host() -> None:
    answers = everywhere(HOSTS, name_of)
    assert list(answers.found.items()) == [("node0", "NODE0"), ("node2", "NODE2")]
    assert answers.failed == {"node1": "node1: it is down"}


def test_all_answers_or_every_failure_in_one_error() -> None:
    assert everywhere(HOSTS[:1], name_of).of_all() == {"node0": "NODE0"}

    def refuse(host: Host) -> None:
        raise HostError(f"{host.name}: no")

    with pytest.raises(HostError) as raised:
        everywhere(HOSTS[:2], refuse).of_all()
    assert str(raised.value) == "node0: no\n       node1: no"


def test_a_mistake_in_the_question_is_no_failure_of_a_host() -> None:
    with pytest.raises(ZeroDivisionError):
        everywhere(HOSTS, lambda host: 1 // 0)


def test_no_host_waits_for_another() -> None:
    meeting = threading.Barrier(3)
    answers = everywhere(HOSTS, lambda host: meeting.wait(30))
    assert sorted(answers.of_all().values()) == [0, 1, 2]


def test_no_more_hosts_are_asked_at_once_than_are_allowed() -> None:
    asked: list[str] = []
    most: list[int] = []

    def ask(host: Host) -> None:
        asked.append(host.name)
        time.sleep(0.05)
        most.append(len(asked))
        asked.remove(host.name)

    everywhere(HOSTS, ask, at_once=1).of_all()
    assert most == [1, 1, 1]


def test_what_happens_meanwhile_can_end_the_wait() -> None:
    given_up = threading.Event()
    everywhere(HOSTS, lambda host: given_up.wait(60), meanwhile=given_up.set).of_all()
    assert given_up.is_set()


def test_of_no_hosts_nobody_is_asked() -> None:
    assert everywhere([], name_of).of_all() == {}
