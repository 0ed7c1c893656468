"""Batch normalisation with ReLU, and GELU, by `cifar10.ops.kernels`, for CPUs.

TensorFlow reads and writes all numbers once more for each sum, ReLU and conversion, and for each of
the ten or so ops that GELU takes.
"""

from typing import Any, Optional

import tensorflow as tf2
import tensorflow.compat.v1 as tf

from cifar10.ops.kernels import library


def fits(x: tf.Tensor) -> bool:
    """Returns whether `norm_relu` supports images [N, height, width, channels]."""
    return x.dtype in (tf.float32, tf.bfloat16) and x.shape[3] % library.CHANNELS == 0


def conv_norm_relu(
    images: tf.Tensor,
    weights: tf.Tensor,
    gamma: tf.Tensor,
    beta: tf.Tensor,
    mean: tf.Tensor,
    variance: tf.Tensor,
    shortcut: Optional[tf.Tensor],
    epsilon: float,
) -> tf.Tensor:
    """Computes ReLU(batch normalisation of a convolution, with given statistics, + `shortcut`).

    It has no gradient: tf.gradients through it raises LookupError.

    Args:
      images: float32 or bfloat16 [N, height, width, inputs]; see `convolution.fits_kernels`.
      weights: [3, 3, inputs, channels] of the type of `images`.
      gamma: each channel's scale, float32 [channels].
      beta: each channel's offset, float32 [channels].
      mean: each channel's mean, float32 [channels].
      variance: each channel's variance, float32 [channels].
      shortcut: [N, height, width, channels] of the type of `images`, or None.
      epsilon: the number that is added to the variance.

    Returns:
      [N, height, width, channels] of the type of `images`; only this is rounded to that type.
    """
    shortcuts = [] if shortcut is None else [shortcut]
    return library.load().cifar10_conv3x3_norm_relu(
        images, weights, gamma, beta, mean, variance, shortcuts, epsilon=epsilon
    )


def norm_relu(
    x: tf.Tensor,
    gamma: tf.Tensor,
    beta: tf.Tensor,
    shortcut: Optional[tf.Tensor],
    epsilon: float,
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Computes ReLU(batch normalisation of `x`, with the batch's statistics, + `shortcut`).

    Args:
      x: float32 or bfloat16 [N, height, width, channels], see `fits`; computed in float32.
      gamma: each channel's scale, float32 [channels].
      beta: each channel's offset, float32 [channels].
      shortcut: of the shape and type of `x`, or None.
      epsilon: the number that is added to the variance.

    Returns:
      The output, like `x`, and each channel's mean and population variance, float32 [channels],
      through which no gradient flows.
    """
    shortcuts = [] if shortcut is None else [shortcut]
    y, mean, variance = library.load().cifar10_norm_relu(x, gamma, beta, shortcuts, epsilon=epsilon)
    return y, mean, variance


@tf.RegisterGradient("Cifar10NormRelu")
def _gradient(op: Any, upstream: tf.Tensor, *_: tf.Tensor) -> list[tf.Tensor]:
    x, gamma, beta, *shortcuts = op.inputs
    y, mean, variance = op.outputs
    gradients = library.load().cifar10_norm_relu_grad(
        x,
        gamma,
        beta,
        mean,
        variance,
        upstream,
        [y] * len(shortcuts),
        epsilon=op.get_attr("epsilon"),
    )
    return [gradients.of_x, gradients.of_gamma, gradients.of_beta, *gradients.of_shortcut]


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
