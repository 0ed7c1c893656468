"""When a process ends because of other tasks: with real sockets and processes."""

import subprocess
import sys
import threading
import time

import pytest

from cifar10.cluster.liveness import LivenessMonitor
from cifar10.errors import ConfigError
from cifar10.run.process_guard import ProcessGuard
from testbeds.processes import ROOT
from tests.cifar10.answering import WAIT_SECS, answering, no_check, wait_until


@pytest.fixture(autouse=True)
def _short_periods(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes monitors and guards look twenty times a second."""
    for name in ("cluster.liveness", "run.process_guard"):
        monkeypatch.setattr(f"cifar10.{name}._PERIOD_SECS", 0.05)


@pytest.fixture
def nobody() -> str:
    """An address of this machine where nobody listens."""
    with answering() as address:
        pass
    return address


def test_a_task_that_answers_in_the_last_moment_does_not_end_this_process(monkeypatch) -> None:
    monkeypatch.setattr("cifar10.run.process_guard._LAST_WORDS_SECS", 0.5)
    ends: list[str] = []
    monkeypatch.setattr(
        "cifar10.run.process_guard.end_process", lambda words, code: ends.append(words())
    )
    with answering() as address:
        pass
    monitor = LivenessMonitor({"ps/0": address}, timeout_secs=0.3)
    monitor.start()
    wait_until(lambda: monitor.missing(["ps/0"]) is not None)
    ProcessGuard(monitor).end_without(["ps/0"])
    with answering(port=int(address.rpartition(":")[2])):
        wait_until(lambda: monitor.is_here("ps/0"))
        time.sleep(0.7)
        monitor.stop()
    assert ends == []


def test_tasks_that_are_missing_while_they_are_not_needed_end_nothing(nobody, monkeypatch) -> None:
    monkeypatch.setattr("cifar10.run.process_guard._LAST_WORDS_SECS", 0.0)
    ends, looks = [], []
    monkeypatch.setattr("cifar10.run.process_guard.end_process", lambda _, code: ends.append(code))
    needed = threading.Event()

    def is_needed() -> bool:
        looks.append(needed.is_set())
        return needed.is_set()

    monitor = LivenessMonitor({"worker/0": nobody}, timeout_secs=0.01)
    monitor.start()
    wait_until(lambda: monitor.missing(["worker/0"]) is not None)
    ProcessGuard(monitor).end_without(["worker/0"], is_needed=is_needed)
    wait_until(lambda: len(looks) > 3)
    assert ends == []
    needed.set()
    wait_until(lambda: bool(ends))
    monitor.stop()
    assert ends[0] == 1


@pytest.mark.parametrize(("at_least", "code"), [(1, None), (None, 2)])
def test_a_task_of_another_job_ends_this_process_only_if_it_is_needed(
    monkeypatch, at_least, code
) -> None:
    monkeypatch.setattr("cifar10.run.process_guard._LAST_WORDS_SECS", 0.0)
    ends: list[int] = []
    looked = threading.Semaphore(0)
    monkeypatch.setattr("cifar10.run.process_guard.end_process", lambda _, code: ends.append(code))

    def meet(label: str) -> bool:
        if label == "worker/1":
            looked.release()
            raise ConfigError("worker/1 belongs to another job")
        return True

    with answering() as one, answering() as other:
        monitor = LivenessMonitor({"worker/0": one, "worker/1": other}, 300.0, meet)
        monitor.start()
        monitor.wait_for(["worker/0"], no_check, lambda _: None)
        assert looked.acquire(timeout=WAIT_SECS)
        ProcessGuard(monitor).end_without(["worker/0", "worker/1"], at_least)
        for _ in range(10):
            assert looked.acquire(timeout=WAIT_SECS)
        if code:
            wait_until(lambda: bool(ends))
        monitor.stop()
    assert set(ends) == ({code} if code else set())


# The process that a guard ends cannot be the test's.
GUARDED = """
import sys, time
from cifar10.run import process_guard
from cifar10.cluster.liveness import LivenessMonitor
from cifar10.run.process_guard import ProcessGuard

process_guard._PERIOD_SECS = process_guard._LAST_WORDS_SECS = 0.1
monitor = LivenessMonitor({"ps/0": sys.argv[1]}, timeout_secs=0.5)
monitor.start()
ProcessGuard(monitor).end_without(["ps/0"], is_over=lambda: sys.argv[2] == "over")
print("trains", flush=True)
time.sleep(60)
"""


def guarded(address: str, state: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-c", GUARDED, address, state],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_a_process_whose_task_is_lost_ends_with_exit_code_1_and_says_so(nobody):
    ended = guarded(nobody, "trains")
    assert ended.returncode == 1
    assert ended.stdout == "trains\n"
    assert ended.stderr.startswith(f"training failed: ps/0 ({nobody}) has not answered for 0.5 s")
    assert ended.stderr.count("\n") == 1


def test_a_process_whose_tasks_have_gone_because_training_is_over_ends_with_exit_code_0(nobody):
    ended = guarded(nobody, "over")
    assert ended.returncode == 0
    assert "training is over; the others have gone" in ended.stdout + ended.stderr
