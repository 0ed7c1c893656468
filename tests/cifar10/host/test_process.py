"""Signals, and how a process ends."""

import contextlib
import faulthandler
import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from cifar10.errors import Stopped
from cifar10.host.process import GRACE_SECS, StopRequest
from testbeds.processes import ROOT
from tests.cifar10.answering import WAIT_SECS, wait_until


def send(stop: StopRequest) -> None:
    stop._note(signal.SIGTERM)


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT])
def test_sigterm_and_ctrl_c_are_taken_over_for_a_time(signum):
    stop, before = StopRequest(), signal.getsignal(signum)
    with stop.installed():
        signal.raise_signal(signum)
        wait_until(lambda: stop.requested)
    assert signal.getsignal(signum) is before
    assert signal.set_wakeup_fd(-1) == -1
    assert not faulthandler.unregister(signal.SIGUSR1)
    with pytest.raises(Stopped, match="stopped by signal") as stopped:
        stop.check()
    assert stopped.value.signum == signum


# Waits in TensorFlow for what never comes, as a synchronous trainer does whose master has gone.
STUCK = """
import signal
import tensorflow.compat.v1 as tf
from cifar10.guard.watchdog import watching
from cifar10.host.process import GRACE_SECS, StopRequest

stop = StopRequest()
with stop.installed(), watching(stop.check), tf.Graph().as_default(), tf.Session() as session:
    never = tf.FIFOQueue(1, tf.int32).dequeue()
    print("waiting", flush=True)
    session.run(never)
"""


def test_a_signal_is_noticed_while_the_main_thread_waits_in_tensorflow(forks):
    with forks.started_code(STUCK) as process:
        process.wait_until(lambda found: found.out == "waiting\n")
        time.sleep(0.2)  # Into the session's call.
        assert process.interrupt(signal.SIGTERM)[0] == 143


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


def test_a_process_that_others_need_ends_when_they_have_gone_or_after_its_time(monkeypatch):
    stop, here = StopRequest(), [False]
    assert not stop.ends(lambda: here[0])  # nobody asked it to go
    here[0] = True
    send(stop)
    stop.check(lambda: here[0])
    here[0] = False
    with pytest.raises(Stopped):
        stop.check(lambda: here[0])
    here[0] = True
    monkeypatch.setattr(StopRequest, "secs", GRACE_SECS + 1)
    assert stop.ends(lambda: here[0])


def test_a_process_with_nothing_to_save_ends_after_a_signal_whatever_it_does(monkeypatch, capsys):
    ended, codes = threading.Event(), []

    def end(code: int) -> None:
        codes.append(code)
        ended.set()

    monkeypatch.setattr(os, "_exit", end)
    send(StopRequest(0.01))
    assert ended.wait(WAIT_SECS)
    assert codes == [143]
    assert capsys.readouterr().err == "stopped by signal 15; run the same command to continue\n"


PROGRAM = """
import sys, threading
from cifar10.host.process import end_process

threading.Thread(target=end_process, args=(sys.argv[1], 3)).start()
threading.Event().wait()
"""


def end(words: str, errors: str) -> "subprocess.CompletedProcess[str]":
    command = f"exec {sys.executable} -c '{PROGRAM}' \"$0\" {errors}"
    return subprocess.run(
        ["bash", "-c", command, words], cwd=ROOT, capture_output=True, text=True, timeout=20
    )


@pytest.mark.parametrize("errors", ["2> /dev/full", "2>&-", ">&- 2> /dev/full"])
def test_a_process_whose_last_line_cannot_be_printed_ends_all_the_same(errors):
    assert end("training failed", errors).returncode == 3


def test_a_process_whose_last_line_waits_for_its_reader_ends_all_the_same():
    reader, writer = os.pipe()  # Nobody reads it, like a terminal after Ctrl-S.
    os.set_blocking(writer, False)
    with contextlib.suppress(BlockingIOError):
        while os.write(writer, bytes(4096)):
            pass
    os.set_blocking(writer, True)
    words = [sys.executable, "-c", PROGRAM, "training failed"]
    try:
        assert subprocess.run(words, cwd=ROOT, stderr=writer, timeout=20).returncode == 3
    finally:
        os.close(reader)
        os.close(writer)


def test_the_last_line_is_one_printable_line_whatever_names_are_in_it():
    assert end("ps/0 is\n\x1b[2Jother", "").stderr == "ps/0 is  [2Jother\n"


LEAVE = """
import threading
import time

import tensorflow.compat.v1 as tf

from cifar10.host.process import leave

begun = threading.Event()

def use_tensorflow():
    while True:
        tf.Session(graph=tf.Graph()).close()
        begun.set()

for _ in range(3):
    threading.Thread(target=use_tensorflow, daemon=True).start()
begun.wait()
print("the last line")
leave(3)
"""


def test_a_process_ends_in_order_while_a_thread_is_inside_tensorflow(forks):
    done = forks.run_code(LEAVE)
    assert (done.returncode, done.stdout) == (3, "the last line\n")
