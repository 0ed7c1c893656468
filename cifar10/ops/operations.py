"""Convolutions, normalisation with ReLU, and GELU, by TensorFlow or by custom ops for CPUs.

`choose` selects an algorithm for a convolution, and `convolve` computes it; all give the same
result except for rounding, whose size docs/kernels.md states. For normalisation and GELU,
TensorFlow reads and writes all numbers once more for each sum, ReLU and conversion, and for each of
the ten or so ops that GELU takes.
"""

from typing import Any, Optional

import tensorflow as tf2
import tensorflow.compat.v1 as tf

from cifar10 import kernels

# Limits for `cifar10.kernels` where an image has several tiles: with more filters, data leaves
# the caches near the core, and positions that tiles cover outside an image are computed in vain.
_MOST_FILTERS, _MOST_COVERED = 128 * 384, 1.2
# The algorithms. CUSTOM_OPS_BF16_DOTS is less exact than CUSTOM_OPS: factors are rounded to
# bfloat16, if the images are bfloat16 and the CPU has dot products of them (AVX512-BF16).
TENSORFLOW, CUSTOM_OPS, CUSTOM_OPS_BF16_DOTS = "tensorflow", "own", "pairs"


def choose(x: tf.Tensor, weights: tf.Tensor, settings: dict[str, Any], wanted: str) -> str:
    """Returns the wanted algorithm if it supports the convolution and is fast, else TENSORFLOW.

    Args:
      x: images [N, height, width, inputs], or channels first, as `settings` say.
      weights: [height, width, inputs, filters] of the type of `x`.
      settings: `strides`, `padding` and `data_format` as tf.nn.conv2d takes them.
      wanted: one of the algorithms.
    """
    _, height, width, inputs = x.shape.as_list()
    is_plain = (
        settings["data_format"] == "NHWC"
        and settings["padding"] == "SAME"
        and settings["strides"] == [1, 1, 1, 1]
        and weights.shape[:2].as_list() == [3, 3]
        and None not in (height, width)
    )
    if not is_plain or wanted == TENSORFLOW:
        return TENSORFLOW
    filters = weights.shape.as_list()[3]
    if kernels.is_one_tile(height, width):
        fits = inputs % kernels.CHANNELS == filters % kernels.CHANNELS == 0
    else:
        fits = (
            inputs % kernels.INPUTS == filters % kernels.CHANNELS == 0
            and inputs >= kernels.CHANNELS
            and inputs * filters <= _MOST_FILTERS
            and kernels.positions(height, width) <= _MOST_COVERED * height * width
        )
    return wanted if fits else TENSORFLOW


def convolve(
    algorithm: str,
    x: tf.Tensor,
    weights: tf.Tensor,
    settings: dict[str, Any],
    trains: Optional[tf.Tensor] = None,
) -> tf.Tensor:
    """Computes a convolution by one of the algorithms; returns what tf.nn.conv2d does.

    By custom ops, the gradient of images whose channels are not as many as filters may be is
    TensorFlow's.

    Args:
      algorithm: what `choose` has returned.
      x: see `choose`.
      weights: see `choose`.
      settings: see `choose`.
      trains: a bool scalar: while it is true, the gradient of the images is computed, and
        afterwards it is zero at no cost. None: it is always computed.
    """
    custom = kernels.load() if algorithm != TENSORFLOW else None
    if custom is None and trains is None:
        return tf.nn.conv2d(x, weights, **settings)
    dots = {"bf16_dots": algorithm == CUSTOM_OPS_BF16_DOTS}

    @tf.custom_gradient
    def convolution(x: tf.Tensor, weights: tf.Tensor) -> Any:
        def of_input(upstream: tf.Tensor) -> Any:
            if custom and weights.shape[2] % kernels.CHANNELS == 0:
                return custom.cifar10_conv3x3(upstream, weights, transposes=True, **dots)
            return tf.nn.conv2d_backprop_input(tf.shape(x), weights, upstream, **settings)

        def gradients(upstream: tf.Tensor) -> Any:
            if trains is None:
                of_x = of_input(upstream)
            else:
                of_x = tf.cond(trains, lambda: of_input(upstream), lambda: tf.zeros_like(x))
            of_x.set_shape(x.shape)
            if custom:
                return of_x, custom.cifar10_conv3x3_backprop_filter(x, upstream, **dots)
            return of_x, tf.nn.conv2d_backprop_filter(x, weights.shape, upstream, **settings)

        if custom:
            return custom.cifar10_conv3x3(x, weights, **dots), gradients
        return tf.nn.conv2d(x, weights, **settings), gradients

    return convolution(x, weights)


@tf.RegisterGradient("Cifar10NormRelu")
def _norm_relu_gradient(op: Any, upstream: tf.Tensor, *_: tf.Tensor) -> list[tf.Tensor]:
    x, gamma, beta, *shortcuts = op.inputs
    y, mean, variance = op.outputs
    inputs = (x, gamma, beta, mean, variance, upstream, [y] * len(shortcuts))
    gradients = kernels.load().cifar10_norm_relu_grad(*inputs, epsilon=op.get_attr("epsilon"))
    return [gradients.of_x, gradients.of_gamma, gradients.of_beta, *gradients.of_shortcut]


def gelu(x: tf.Tensor, custom: bool) -> tf.Tensor:
    """Computes x (1 + tanh(sqrt(2 / pi) (x + .044715 x^3))) / 2 (arXiv:1606.08415, section 2).

    Args:
      x: float32 or bfloat16, or without `custom` also float16, of any shape. The function computes
        in float32.
      custom: whether to use custom ops, which are for CPUs, or TensorFlow's.

    Returns:
      A tensor of the shape and type of `x`.
    """
    if not custom:
        return tf.cast(tf2.nn.gelu(tf.cast(x, tf.float32), approximate=True), x.dtype)
    return kernels.load().cifar10_gelu(x)


@tf.RegisterGradient("Cifar10Gelu")
def _gelu_gradient(op: Any, upstream: tf.Tensor) -> tf.Tensor:
    return kernels.load().cifar10_gelu_grad(op.inputs[0], upstream)
