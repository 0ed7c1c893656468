"""Signals, and how long a task that the master needs stays after one."""

import os
import signal
import time

import pytest

from cifar10 import stopping
from cifar10.errors import Stopped
from cifar10.stopping import Stay, StopRequest


def send(stop: StopRequest) -> None:
    stop._note(signal.SIGTERM, None)


def test_a_signal_is_remembered():
    stop = StopRequest()
    stop.check()
    assert not stop.requested
    send(stop)
    assert stop.requested
    with pytest.raises(Stopped, match="stopped by signal 15; run the same command to continue"):
        stop.check()


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT])
def test_sigterm_and_ctrl_c_are_taken_over(signum):
    before = {one: signal.getsignal(one) for one in (signal.SIGTERM, signal.SIGINT)}
    stop = StopRequest()
    try:
        stop.install()
        signal.raise_signal(signum)
        with pytest.raises(Stopped) as stopped:
            stop.check()
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)
    assert stopped.value.signum == signum


def test_a_second_signal_ends_the_process_unless_it_comes_with_the_first(monkeypatch):
    codes: list[int] = []
    monkeypatch.setattr(os, "_exit", codes.append)
    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now)
    stop = StopRequest()
    send(stop)
    now += 0.9
    send(stop)
    assert codes == []
    now += 0.2
    send(stop)
    assert codes == [143]


def test_a_task_stays_until_the_master_has_gone():
    stop, here = StopRequest(), [True]
    stay = Stay(stop, lambda: here[0])
    here[0] = False
    assert not stay.is_over  # nobody asked it to go
    here[0] = True
    send(stop)
    assert not stay.is_over
    stay.check()
    here[0] = False
    assert stay.is_over
    with pytest.raises(Stopped):
        stay.check()


def test_a_task_stays_no_longer_than_whoever_ends_it_waits(monkeypatch):
    stop = StopRequest()
    stay = Stay(stop, lambda: True)
    send(stop)
    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now + stopping.STAY_SECS - 0.5)
    assert not stay.is_over
    monkeypatch.setattr(time, "monotonic", lambda: now + stopping.STAY_SECS + 0.5)
    assert stay.is_over
