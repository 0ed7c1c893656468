"""Private API of TensorFlow that only tests need."""

from typing import Any

import tensorflow.compat.v1 as tf
from tensorflow.python.framework import kernels


def registered_kernels(op_type: str) -> list[Any]:
    """The KernelDefs of an op, of all devices; public API lists ops, but not their kernels."""
    return list(kernels.get_registered_kernels_for_op(op_type).kernel)


def add_listener(
    hook: tf.train.CheckpointSaverHook, listener: tf.train.CheckpointSaverListener
) -> None:
    """Adds a listener to a hook that exists, as Estimator does with `saving_listeners`."""
    hook._listeners.append(listener)
