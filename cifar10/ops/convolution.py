"""Algorithms for convolutions; `choose` selects one for a convolution, `convolve` computes it.

The gradients of convolutions take two thirds of a training step, and on a CPU half of that is for
the gradients of the filters. All algorithms give the same result except for rounding, whose size
docs/kernels.md states.
"""

import dataclasses
from typing import Any, Callable, Optional

import tensorflow.compat.v1 as tf

from cifar10.ops.kernels import library

# The fewest channels and images that fill a core's vector registers.
_FEWEST_CHANNELS, _FEWEST_IMAGES = 64, 16
# Limits for `cifar10.ops.kernels` where an image has several tiles: with more filters, data leaves
# the caches near the core, and positions that tiles cover outside an image are computed in vain.
_MOST_FILTERS, _MOST_COVERED = 128 * 384, 1.2
# Limits for `filter_gradient_by_images`: the size of the piece of a batch that a core computes
# fastest, as the positions of all its images together, and as images per channel.
_POSITIONS_A_PIECE, _IMAGES_A_CHANNEL = 7_300, 0.5


# The algorithms. OWN_PAIRS is less exact than OWN_KERNELS: what is multiplied is rounded to
# bfloat16, if the images are bfloat16 and the CPU multiplies pairs of them (AVX512-BF16). BY_IMAGES
# is TensorFlow's, but for the gradient of the filters, see `filter_gradient_by_images`.
TENSORFLOW, BY_IMAGES = "tensorflow", "by_images"
OWN_KERNELS, OWN_PAIRS = "own_kernels", "own_pairs"


@dataclasses.dataclass(frozen=True)
class ConvAlgorithms:
    """The algorithms besides TensorFlow's that `choose` may return.

    Attributes:
      own: whether OWN_KERNELS is allowed.
      pairs: whether OWN_PAIRS takes its place.
      by_images: whether BY_IMAGES is allowed.
    """

    own: bool = False
    pairs: bool = False
    by_images: bool = False


def choose(
    x: tf.Tensor, weights: tf.Tensor, settings: dict[str, Any], allowed: ConvAlgorithms
) -> str:
    """Returns the fastest of the algorithms that are allowed and support the convolution.

    Args:
      x: images [N, height, width, inputs], or channels first, as `settings` say.
      weights: [height, width, inputs, filters] of the type of `x`.
      settings: `strides`, `padding` and `data_format` as tf.nn.conv2d takes them.
      allowed: the algorithms that may be returned besides TensorFlow's.
    """
    if allowed.own and fits_kernels(x, weights, settings):
        return OWN_PAIRS if allowed.pairs else OWN_KERNELS
    if allowed.by_images and pieces_of(x, weights, settings):
        return BY_IMAGES
    return TENSORFLOW


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
    elif algorithm == BY_IMAGES:
        of_filters = _by_images(pieces_of(x, weights, settings))
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


def _by_images(pieces: int) -> Callable[..., tf.Tensor]:
    return lambda x, _, upstream: filter_gradient_by_images(x, upstream, pieces)


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


def fits(x: tf.Tensor, weights: tf.Tensor, settings: dict[str, Any]) -> bool:
    """Returns whether `by_images` supports a convolution and it is large enough."""
    count, _, _, inputs = x.shape.as_list()
    return (
        _is_plain(x, weights, settings)
        and count is not None
        and count >= _FEWEST_IMAGES
        and min(inputs, weights.shape[3]) >= _FEWEST_CHANNELS
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


def pieces_of(x: tf.Tensor, weights: tf.Tensor, settings: dict[str, Any]) -> int:
    """Returns the number of pieces for `filter_gradient_by_images`; 0 if it should not be used."""
    if not fits(x, weights, settings):
        return 0
    count, height, width, inputs = x.shape.as_list()
    most = min(
        _POSITIONS_A_PIECE // (height * width),
        int(_IMAGES_A_CHANNEL * min(inputs, weights.shape[3])),
    )
    for pieces in range(1, count // _FEWEST_IMAGES + 1):
        if count % pieces == 0 and count // pieces <= most:
            return pieces
    return 0


def filter_gradient_by_images(x: tf.Tensor, upstream: tf.Tensor, pieces: int) -> tf.Tensor:
    """Computes the gradient of 3x3 filters, stride 1, `SAME` padding, as a forward convolution.

    The gradient of a filter is a sum over positions and images. In bfloat16, a CPU multiplies pairs
    of adjacent numbers in such a sum, but in a batch neither the images of a position nor the
    positions of a channel are adjacent. So oneDNN's kernel for this gradient reaches
    about two thirds of the speed of its forward kernel (without AMX). But the gradient

        gradient[i, j, c, f] = sum over n, h, w: x[n, h + i - 1, w + j - 1, c] upstream[n, h, w, f]

    is itself a forward convolution with images and channels exchanged: that of the images
    upstream[f, h, w, n] with the filters x[h, w, n, c], for all shifts by at most one pixel,
    mirrored. On fastnet's shapes this saves 29 to 152 us per image (one core of a Zen 4), of which
    the two transpositions cost 6 to 12.

    Args:
      x: the convolution's input, [N, height, width, inputs].
      upstream: the gradient of the convolution's output, [N, height, width, filters].
      pieces: the number of pieces, small enough for the caches, into which the batch is split; a
        divisor of N.

    Returns:
      [3, 3, inputs, filters] of the type of `x`; the pieces are added in float32.
    """
    sums = []
    for some_x, some_upstream in zip(tf.split(x, pieces), tf.split(upstream, pieces)):
        y = tf.nn.conv2d(
            tf.transpose(some_upstream, [3, 1, 2, 0]),
            tf.transpose(some_x, [1, 2, 0, 3]),
            [1, 1, 1, 1],
            [[0, 0], [1, 1], [1, 1], [0, 0]],
        )
        sums.append(tf.cast(y, tf.float32))
    mirrored = tf.cast(tf.add_n(sums), x.dtype)  # [filters, 3, 3, inputs]
    return tf.transpose(tf.reverse(mirrored, [1, 2]), [1, 2, 3, 0])
