"""Private API of TensorFlow that only tests use."""

from typing import Any

from tensorflow.python.framework import kernels


def registered_kernels(op_type: str) -> list[Any]:
    """Returns the KernelDefs of an op for all devices; the public API does not list kernels."""
    return list(kernels.get_registered_kernels_for_op(op_type).kernel)
