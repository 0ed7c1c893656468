"""Which tasks answer, for how long one has not, and what then happens: with real sockets."""

import threading
import time

import pytest

from cifar10.cluster.liveness import LivenessMonitor
from cifar10.errors import ConfigError, Stopped, TrainingError
from tests.cifar10.answering import WAIT_SECS, answering, no_check, refuse, wait_until


def test_a_task_is_missing_once_its_time_is_over(nobody):
    monitor = LivenessMonitor({"ps/0": nobody}, timeout_secs=0.2)
    assert monitor.missing(["ps/0"]) is None
    time.sleep(0.25)
    assert monitor.missing(["ps/0"]) == (
        f"ps/0 ({nobody}) has not answered for 0.2 s (--cluster-timeout); start what is missing "
        "again with the same TF_CONFIG or flags, and then this task"
    )


def test_so_many_tasks_may_be_missing_as_are_not_needed(nobody):
    with answering() as address:
        monitor = LivenessMonitor({"worker/0": address, "worker/1": nobody}, timeout_secs=1.0)
        monitor.start()
        wait_until(lambda: monitor.missing(["worker/1"]) is not None)
        for at_least, too_few in ((None, True), (2, True), (1, False), (0, False)):
            assert (monitor.missing(["worker/0", "worker/1"], at_least) is not None) == too_few
        monitor.stop()


def test_a_task_that_goes_away_is_missed_and_one_that_comes_back_is_not():
    with answering() as address:
        monitor = LivenessMonitor({"ps/0": address}, timeout_secs=1.0)
        monitor.start()
        wait_until(lambda: monitor.is_here("ps/0"))
    wait_until(lambda: monitor.missing(["ps/0"]) is not None)
    with answering(port=int(address.rpartition(":")[2])):
        wait_until(lambda: monitor.is_here("ps/0"))
        assert monitor.missing(["ps/0"]) is None
        monitor.stop()


def test_waiting_for_one_that_stays_away_is_a_training_error(nobody):
    monitor = LivenessMonitor({"ps/0": nobody}, timeout_secs=0.3)
    monitor.start()
    with pytest.raises(TrainingError, match=r"^ps/0 .* has not answered for 0\.3 s"):
        monitor.wait_for(["ps/0"], no_check, print)
    monitor.stop()


def test_a_signal_ends_the_waiting(nobody) -> None:
    monitor = LivenessMonitor({"ps/0": nobody}, timeout_secs=WAIT_SECS)
    monitor.start()
    asked = threading.Event()

    def check() -> None:
        if asked.is_set():
            raise Stopped(15)
        asked.set()

    with pytest.raises(Stopped):
        monitor.wait_for(["ps/0"], check, print)
    monitor.stop()


def test_who_is_silent_is_said_once_and_that_it_answers_again(monkeypatch) -> None:
    lines: list[str] = []
    matters = threading.Event()
    with answering() as address:
        monitor = LivenessMonitor({"worker/0": address}, timeout_secs=300.0)
        is_silent = monitor.is_silent
        monkeypatch.setattr(monitor, "is_silent", lambda label: is_silent(label, 0.3))
        monitor.start()
        wait_until(lambda: monitor.is_here("worker/0"))
        monitor.say_who_is_silent(["worker/0"], lines.append, matters.is_set)
    wait_until(lambda: monitor.is_silent("worker/0"))
    assert lines == []
    matters.set()
    wait_until(lambda: len(lines) == 1)
    with answering(port=int(address.rpartition(":")[2])):
        wait_until(lambda: len(lines) == 2)
    monitor.stop()
    assert lines == [
        f"worker/0 ({address}) does not answer; --cluster-timeout is 300 s",
        f"worker/0 ({address}) answers again",
    ]


def test_a_task_counts_only_once_it_was_met():
    met, asked = threading.Event(), []

    def meet(label: str) -> bool:
        asked.append(label)
        return met.is_set()

    with answering() as address:
        monitor = LivenessMonitor({"ps/0": address}, 60.0, meet)
        monitor.start()
        wait_until(lambda: len(asked) > 1)
        assert monitor.missing(["ps/0"], timeout_secs=0.0)
        assert monitor.is_here("ps/0")
        met.set()
        monitor.wait_for(["ps/0"], no_check, print)
        monitor.stop()
    assert set(asked) == {"ps/0"}


def test_who_waits_for_a_task_of_another_job_is_told_at_once():
    with answering() as address:
        monitor = LivenessMonitor({"ps/0": address}, 60.0, refuse)
        monitor.start()
        with pytest.raises(ConfigError, match="^ps/0 belongs to another job$"):
            monitor.wait_for(["ps/0"], no_check, print)
        monitor.stop()
