"""A mark on the variables while an update changes them, so that a copy of them can be trusted.

A chief that waits for another machine's gradient may have to save from another thread, while its
step is still running. The values that it saves belong together only if no update ran meanwhile. The
mark says so: it is odd from the first change of an update to the last one, and is never the same
after an update as before it.
"""

from collections.abc import Sequence
from typing import Any

import tensorflow.compat.v1 as tf

from cifar10.step.sync_replicas import shared_counter

UPDATES = "update_mark"  # name of the tensor: mark and global step, int64 [2]


class UpdateMark:
    """The mark, an int64 scalar variable that the chief's sessions set to 0.

    Args:
      device: the device of the variable, that of the global step.
    """

    def __init__(self, device: str) -> None:
        self._device = device
        with tf.device(device):
            self.variable = shared_counter("update_count")

    def begin(self, values: Sequence[tf.Tensor]) -> tf.Operation:
        """Returns the op that marks the beginning of an update; all changes must come after it.

        Args:
          values: all values that the update waits for, tensors of any shape. If one never arrives,
            nothing is changed.
        """
        with tf.device(self._device), tf.control_dependencies(values):
            return self.variable.assign_add(1).op

    def end(self, done: Any) -> tf.Operation:
        """Returns the op that marks the end of an update.

        Args:
          done: the op or tensor after which all variables have their new values.
        """
        with tf.device(self._device), tf.control_dependencies([done]):
            return self.variable.assign_add(1).op

    def keep_for_hooks(self, step: tf.Variable) -> None:
        """Makes the tensor `UPDATES`.

        Args:
          step: the global step, an int64 scalar.
        """
        with tf.device(self._device):
            mark = self.variable.read_value()
            with tf.control_dependencies([mark]):
                tf.stack([mark, step.read_value()], name=UPDATES)
