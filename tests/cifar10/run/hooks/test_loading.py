"""Modules are loaded beside the first step."""

import subprocess
import sys
import threading

import tensorflow.compat.v1 as tf

from cifar10.run.hooks.loading import LoadingHook

# What draws pictures, and therefore loads matplotlib.
DRAWING = ("matplotlib", "cifar10.output.report.page")


def loaded_by(code: str) -> list[bool]:
    """Returns which modules of `DRAWING` are loaded after `code`, in a process of its own."""
    asked = f"import sys; print([name in sys.modules for name in {DRAWING!r}])"
    command = [sys.executable, "-c", f"{code}\n{asked}"]
    result = subprocess.run(command, check=True, capture_output=True, text=True)
    return [word == "True" for word in result.stdout.split("[")[-1].strip("]\n").split(", ")]


def test_training_loads_what_draws_pictures_only_later():
    assert loaded_by("import cifar10.run.master") == [False, False]
    assert loaded_by("from cifar10.output import report; report.load()") == [True, True]


def test_loading_begins_in_a_thread_of_its_own_once():
    threads: list[threading.Thread] = []
    begun = threading.Event()

    def load() -> None:
        threads.append(threading.current_thread())
        begun.set()

    with tf.Graph().as_default():
        step = tf.assign_add(tf.train.create_global_step(), 1)
        with tf.train.MonitoredSession(hooks=[LoadingHook(load)]) as session:
            assert not begun.is_set()
            session.run(step)
            assert begun.wait(60.0)
            session.run(step)
    (thread,) = threads
    assert thread is not threading.main_thread()
