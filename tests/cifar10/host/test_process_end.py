"""How a thread ends its process, with real processes."""

import contextlib
import os
import subprocess
import sys

import pytest

from testbeds.processes import ROOT

PROGRAM = """
import sys, threading
from cifar10.host.process_end import end_process

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

from cifar10.host.process_end import leave

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
