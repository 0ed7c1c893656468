"""GELU by `cifar10.ops.kernels`, which read and write memory only once.

TensorFlow has no single op for it, and each of the ten or so ops that it uses reads and writes
memory.
"""

from typing import Any

import tensorflow as tf2
import tensorflow.compat.v1 as tf

from cifar10.ops.kernels import library


def gelu(x: tf.Tensor, own: bool) -> tf.Tensor:
    """Computes x (1 + tanh(sqrt(2 / pi) (x + .044715 x^3))) / 2 (arXiv:1606.08415, section 2).

    Args:
      x: float32 or bfloat16, or without `own` also float16, of any shape. The function computes in
        float32.
      own: whether to use `cifar10.ops.kernels`, which is for CPUs, or TensorFlow's ops.

    Returns:
      A tensor of the shape and type of `x`.
    """
    if not own:
        return tf.cast(tf2.nn.gelu(tf.cast(x, tf.float32), approximate=True), x.dtype)
    ops = library.load()

    @tf.custom_gradient
    def with_gradient(x: tf.Tensor) -> Any:
        return ops.cifar10_gelu(x), lambda upstream: ops.cifar10_gelu_grad(x, upstream)

    return with_gradient(x)
