"""Algorithms for convolutions; `choose` selects one for a convolution, `convolve` computes it.

Both give the same result except for rounding, whose size docs/kernels.md states.
"""

from typing import Any, Callable, Optional

import tensorflow.compat.v1 as tf

from cifar10.ops.kernels import library

# Limits for `cifar10.ops.kernels` where an image has several tiles: with more filters, data leaves
# the caches near the core, and positions that tiles cover outside an image are computed in vain.
_MOST_FILTERS, _MOST_COVERED = 128 * 384, 1.2
# The algorithms. OWN_PAIRS is less exact than OWN_KERNELS: what is multiplied is rounded to
# bfloat16, if the images are bfloat16 and the CPU multiplies pairs of them (AVX512-BF16).
TENSORFLOW, OWN_KERNELS, OWN_PAIRS = "tensorflow", "own", "pairs"


def choose(x: tf.Tensor, weights: tf.Tensor, settings: dict[str, Any], wanted: str) -> str:
    """Returns the wanted algorithm if it supports the convolution and is fast, else TENSORFLOW.

    Args:
      x: images [N, height, width, inputs], or channels first, as `settings` say.
      weights: [height, width, inputs, filters] of the type of `x`.
      settings: `strides`, `padding` and `data_format` as tf.nn.conv2d takes them.
      wanted: one of the algorithms.
    """
    fits = wanted != TENSORFLOW and fits_kernels(x, weights, settings)
    return wanted if fits else TENSORFLOW


def convolve(
    algorithm: str,
    x: tf.Tensor,
    weights: tf.Tensor,
    settings: dict[str, Any],
    early: Optional[tf.Tensor] = None,
) -> tf.Tensor:
    """Computes a convolution by one of the algorithms; returns what tf.nn.conv2d does.

    By our own kernels, the gradient of images whose channels are not as many as filters may be is
    TensorFlow's.

    Args:
      algorithm: what `choose` has returned.
      x: see `choose`.
      weights: see `choose`.
      settings: see `choose`.
      early: a bool scalar: while it is true, the gradient of the images is computed, and afterwards
        it is zero at no cost. None: it is always computed.
    """
    forwards, of_input, of_filters = _tensorflow_ops(settings)
    if algorithm in (OWN_KERNELS, OWN_PAIRS):
        forwards, of_own_input, of_filters = _own_ops(pairs=algorithm == OWN_PAIRS)
        if weights.shape[2] % library.CHANNELS == 0:
            of_input = of_own_input
    elif early is None:
        return forwards(x, weights)

    @tf.custom_gradient
    def convolution(x: tf.Tensor, weights: tf.Tensor) -> Any:
        def gradients(upstream: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            inputs = (x, weights, upstream)
            if early is None:
                of_x = of_input(*inputs)
            else:
                of_x = tf.cond(early, lambda: of_input(*inputs), lambda: tf.zeros_like(x))
            of_x.set_shape(x.shape)
            return of_x, of_filters(*inputs)

        return forwards(x, weights), gradients

    return convolution(x, weights)


def _tensorflow_ops(settings: dict[str, Any]) -> tuple[Callable[..., tf.Tensor], ...]:
    """Returns the convolution and its gradients, the latter of (x, weights, upstream)."""
    return (
        lambda x, weights: tf.nn.conv2d(x, weights, **settings),
        lambda x, weights, upstream: tf.nn.conv2d_backprop_input(
            tf.shape(x), weights, upstream, **settings
        ),
        lambda x, weights, upstream: tf.nn.conv2d_backprop_filter(
            x, weights.shape, upstream, **settings
        ),
    )


def _own_ops(pairs: bool) -> tuple[Callable[..., tf.Tensor], ...]:
    ops = library.load()
    return (
        lambda x, weights: ops.cifar10_conv3x3(x, weights, pairs=pairs),
        lambda x, weights, upstream: ops.cifar10_conv3x3(
            upstream, weights, transposes=True, pairs=pairs
        ),
        lambda x, weights, upstream: ops.cifar10_conv3x3_backprop_filter(x, upstream, pairs=pairs),
    )


def fits_kernels(x: tf.Tensor, weights: tf.Tensor, settings: dict[str, Any]) -> bool:
    """Returns whether `cifar10.ops.kernels` supports a convolution and is the fastest for it."""
    _, height, width, inputs = x.shape.as_list()
    filters = weights.shape.as_list()[3]
    if not _is_plain(x, weights, settings):
        return False
    if library.is_one_tile(height, width):
        return inputs % library.CHANNELS == filters % library.CHANNELS == 0
    return (
        inputs % library.INPUTS == filters % library.CHANNELS == 0
        and inputs >= library.CHANNELS
        and inputs * filters <= _MOST_FILTERS
        and library.positions(height, width) <= _MOST_COVERED * height * width
    )


def _is_plain(x: tf.Tensor, weights: tf.Tensor, settings: dict[str, Any]) -> bool:
    """Returns whether it is 3x3, stride 1, `SAME`, channels last, with a known image size."""
    return (
        settings["data_format"] == "NHWC"
        and settings["padding"] == "SAME"
        and settings["strides"] == [1, 1, 1, 1]
        and weights.shape[:2].as_list() == [3, 3]
        and None not in x.shape.as_list()[1:]
    )
