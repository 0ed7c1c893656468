"""Modules are loaded beside the first step."""

import threading

import tensorflow.compat.v1 as tf

from cifar10.run.hooks.loading import LoadingHook


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
