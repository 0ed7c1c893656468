"""A hook that loads modules while TensorFlow prepares the first step."""

import threading
from typing import Any, Callable

import tensorflow.compat.v1 as tf


class LoadingHook(tf.train.SessionRunHook):
    """Calls a function that loads modules, in a thread of its own, when the first step begins.

    In that step TensorFlow optimises its graph for about a second, in one thread and without
    Python's lock. What needs the modules earlier than they are loaded waits for them.

    Args:
      load: the function.
    """

    def __init__(self, load: Callable[[], None]) -> None:
        self._load = load
        self._has_begun = False

    def before_run(self, run_context: Any) -> None:
        """Begins to load, in the first step."""
        if not self._has_begun:
            self._has_begun = True
            threading.Thread(target=self._load, name="loading").start()
