"""By which algorithm a convolution is computed: `choose` says it, and each is a function.

Two thirds of a training step are gradients of convolutions, and on a CPU half of that those of the
filters. What is computed here stays the same, but for rounding: `cifar10.ops.winograd` says how
much.
"""

import dataclasses
from typing import Any, Callable, Optional

import tensorflow.compat.v1 as tf

from cifar10.ops import winograd
from cifar10.ops.kernels import library

# The channels and images that it takes to fill a core's vector registers.
_FEWEST_CHANNELS, _FEWEST_IMAGES = 64, 16
# `cifar10.ops.kernels`: those of more leave the near caches, and what tiles cover beside an image
# is computed in vain. 64 by 256 channels at 15x15 positions are faster, 256 by 256 at 7x7 are not.
_MOST_FILTERS, _MOST_COVERED = 64 * 256, 1.2
# `filter_gradient_by_images`: the size of a piece that a core computes fastest, as positions of all
# its images together, and as images by channel.
_POSITIONS_A_PIECE, _IMAGES_A_CHANNEL = 7_300, 0.5


# Computes a convolution: images, weights, settings as tf.nn.conv2d takes them, `early` -> what
# tf.nn.conv2d returns. `early` is a bool, a scalar tensor: the images have a gradient as long as it
# holds, and zeros afterwards, which are not computed; None: they always have one.
Algorithm = Callable[[tf.Tensor, tf.Tensor, dict[str, Any], Optional[tf.Tensor]], tf.Tensor]


@dataclasses.dataclass(frozen=True)
class ConvAlgorithms:
    """Algorithms beside TensorFlow's that `choose` may take.

    Attributes:
      own: `own_kernels`.
      winograd_saving: `winograds`, which computes in float32, where it makes so many times fewer
        products; None: nowhere.
      by_images: `by_images`.
    """

    own: bool = False
    winograd_saving: Optional[float] = None
    by_images: bool = False


def choose(
    x: tf.Tensor,
    weights: tf.Tensor,
    settings: dict[str, Any],
    allowed: ConvAlgorithms,
    early: Optional[tf.Tensor] = None,
) -> Algorithm:
    """The fastest algorithm for a convolution of those that are allowed and fit.

    Args:
      x: images [N, height, width, inputs], or channels first, as `settings` say.
      weights: [height, width, inputs, filters] of the type of `x`.
      settings: `strides`, `padding` and `data_format` as tf.nn.conv2d takes them.
      allowed: beside TensorFlow's.
      early: see `Algorithm`.
    """
    if allowed.own and fits_kernels(x, weights, settings):
        return own_kernels
    if not fits(x, weights, settings):
        return tensorflow
    least = allowed.winograd_saving
    if least is not None and early is None and winograd.saving(x) >= least:
        return winograds
    if allowed.by_images and pieces_of(x, weights, settings):
        return by_images
    return tensorflow


def tensorflow(
    x: tf.Tensor, weights: tf.Tensor, settings: dict[str, Any], early: Optional[tf.Tensor] = None
) -> tf.Tensor:
    """An `Algorithm`: TensorFlow's ops."""
    if early is None:
        return tf.nn.conv2d(x, weights, **settings)
    return _with_gradients(x, weights, early, *_tensorflow_ops(settings))


def own_kernels(
    x: tf.Tensor, weights: tf.Tensor, settings: dict[str, Any], early: Optional[tf.Tensor] = None
) -> tf.Tensor:
    """An `Algorithm`: `cifar10.ops.kernels`."""
    return _with_gradients(x, weights, early, *_own_ops())


def winograds(
    x: tf.Tensor, weights: tf.Tensor, settings: dict[str, Any], early: Optional[tf.Tensor] = None
) -> tf.Tensor:
    """An `Algorithm`: `cifar10.ops.winograd`. The input always has a gradient."""
    y = winograd.convolve(tf.cast(x, tf.float32), tf.cast(weights, tf.float32))
    return tf.cast(y, x.dtype)


def by_images(
    x: tf.Tensor, weights: tf.Tensor, settings: dict[str, Any], early: Optional[tf.Tensor] = None
) -> tf.Tensor:
    """An `Algorithm`: TensorFlow's ops, but for `filter_gradient_by_images`."""
    pieces = pieces_of(x, weights, settings)
    forwards, of_input, _ = _tensorflow_ops(settings)

    def of_filters(x: tf.Tensor, weights: tf.Tensor, upstream: tf.Tensor) -> tf.Tensor:
        return filter_gradient_by_images(x, upstream, pieces)

    return _with_gradients(x, weights, early, forwards, of_input, of_filters)


def _with_gradients(
    x: tf.Tensor,
    weights: tf.Tensor,
    early: Optional[tf.Tensor],
    forwards: Callable[..., tf.Tensor],
    of_input: Callable[..., tf.Tensor],
    of_filters: Callable[..., tf.Tensor],
) -> tf.Tensor:
    """Computes `forwards(x, weights)` with gradients (x, weights, upstream) of its own."""

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
    return (
        lambda x, weights: tf.nn.conv2d(x, weights, **settings),
        lambda x, weights, upstream: tf.nn.conv2d_backprop_input(
            tf.shape(x), weights, upstream, **settings
        ),
        lambda x, weights, upstream: tf.nn.conv2d_backprop_filter(
            x, weights.shape, upstream, **settings
        ),
    )


def _own_ops() -> tuple[Callable[..., tf.Tensor], ...]:
    ops = library.load()
    return (
        ops.cifar10_conv3x3,
        lambda x, weights, upstream: ops.cifar10_conv3x3(upstream, weights, transposes=True),
        lambda x, weights, upstream: ops.cifar10_conv3x3_backprop_filter(x, upstream),
    )


def fits_kernels(x: tf.Tensor, weights: tf.Tensor, settings: dict[str, Any]) -> bool:
    """Whether a convolution is one that `cifar10.ops.kernels` computes, and fastest."""
    _, height, width, inputs = x.shape.as_list()
    filters = weights.shape.as_list()[3]
    return (
        _is_plain(x, weights, settings)
        and inputs % library.CHANNELS == filters % library.CHANNELS == 0
        and inputs * filters <= _MOST_FILTERS
        and _covered(height) * _covered(width) <= _MOST_COVERED * height * width
    )


def _covered(size: int) -> int:
    """The positions along an axis that tiles cover, some of them beside the image."""
    return -(-size // library.TILE) * library.TILE


def fits(x: tf.Tensor, weights: tf.Tensor, settings: dict[str, Any]) -> bool:
    """Whether the other algorithms can compute a convolution, and it is large enough for them."""
    count, _, _, inputs = x.shape.as_list()
    return (
        _is_plain(x, weights, settings)
        and count is not None
        and count >= _FEWEST_IMAGES
        and min(inputs, weights.shape[3]) >= _FEWEST_CHANNELS
    )


def _is_plain(x: tf.Tensor, weights: tf.Tensor, settings: dict[str, Any]) -> bool:
    """Whether it is 3x3, stride 1, `SAME`, channels last, of images of a known size."""
    return (
        settings["data_format"] == "NHWC"
        and settings["padding"] == "SAME"
        and settings["strides"] == [1, 1, 1, 1]
        and weights.shape[:2].as_list() == [3, 3]
        and None not in x.shape.as_list()[1:]
    )


def pieces_of(x: tf.Tensor, weights: tf.Tensor, settings: dict[str, Any]) -> int:
    """Into how many pieces `filter_gradient_by_images` should cut a batch, 0: it does not fit."""
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
    """The gradient of 3x3 filters, stride 1, `SAME` padding, computed as a convolution forwards.

    The gradient of a filter is a sum over positions and images. In bfloat16 a CPU multiplies pairs
    of neighbours in such a sum, and in a batch neither the images of a position nor the positions
    of a channel are neighbours: oneDNN's kernel for it makes half of the arithmetic that its
    forward kernel makes. But it is a forward convolution, too, if images are taken for channels
    and channels for images:

        gradient[i, j, c, f] = sum over n, h, w: x[n, h + i - 1, w + j - 1, c] upstream[n, h, w, f]

    is that of the images upstream[f, h, w, n] with the filters x[h, w, n, c], for all shifts by at
    most a pixel, mirrored. On fastnet's shapes that saves 29 to 152 us an image (one core of a Zen
    4), of which the two transpositions take back 6 to 12.

    Args:
      x: the convolution's input, [N, height, width, inputs].
      upstream: the gradient of its output, [N, height, width, filters].
      pieces: the batch is cut into so many, which are small enough for the caches; divides N.

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
