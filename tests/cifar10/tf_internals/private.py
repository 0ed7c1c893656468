"""Private API of TensorFlow that only tests use."""

from typing import Any

import tensorflow.compat.v1 as tf
from tensorflow.python.framework import kernels


def registered_kernels(op_type: str) -> list[Any]:
    """Returns the KernelDefs of an op for all devices; the public API does not list kernels."""
    return list(kernels.get_registered_kernels_for_op(op_type).kernel)


def add_listener(
    hook: tf.train.CheckpointSaverHook, listener: tf.train.CheckpointSaverListener
) -> None:
    """Adds a listener to an existing hook, as Estimator does with `saving_listeners`."""
    hook._listeners.append(listener)
