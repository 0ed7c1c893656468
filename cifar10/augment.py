"""Random crops, flips and cutout of a whole batch at once, as a function of (seed, position).

A batch is cropped and flipped by one gather of its pixels and cut out by one select; there is no
loop over images. The same seed and position give the same picture in every run, also in one that
continues from a checkpoint.
"""

from typing import Any

import tensorflow.compat.v1 as tf

from cifar10.schema import CHANNELS, HEIGHT, WIDTH

PADDING = 4  # pixels on each side before the crop, as in arXiv:1512.03385, section 4.2


def crop_and_flip(
    images: Any, seed: Any, padding: int = PADDING, fill: str = "zeros", flip: Any = None
) -> Any:
    """Pads, crops 32x32 at a random place, flips left to right.

    Args:
      images: uint8 [N, 32, 32, 3].
      seed: int32 or int64 [2].
      padding: pixels on each side.
      fill: `zeros`, or `reflect`, which mirrors the image at its outermost pixels.
      flip: which images to flip, int [N] of 0 and 1; None: every second time at random.

    Returns:
      uint8 [N, 32, 32, 3].
    """
    count = tf.shape(images)[0]
    top, left = (
        tf.random.stateless_uniform([count], seed + [0, index], 0, 2 * padding + 1, tf.int32)
        for index in (1, 2)
    )
    if flip is None:
        flip = tf.random.stateless_uniform([count], seed + [0, 3], 0, 2, tf.int32)
    rows = top[:, None] + tf.range(HEIGHT)  # [N, 32], of the padded image
    columns = tf.range(WIDTH)
    columns = tf.where_v2(flip[:, None] > 0, WIDTH - 1 - columns, columns)  # [N, 32]
    columns = left[:, None] + columns  # [N, 32]
    padded_height, padded_width = HEIGHT + 2 * padding, WIDTH + 2 * padding
    image = tf.range(count) * (padded_height * padded_width)
    pixels = (image[:, None] + rows * padded_width)[:, :, None] + columns[:, None, :]  # [N, 32, 32]
    padded = _pad(images, padding, fill)
    return tf.gather(tf.reshape(padded, [-1, CHANNELS]), pixels)


def _pad(images: Any, padding: int, fill: str) -> Any:
    edge = [padding, padding]
    mode = "REFLECT" if fill == "reflect" else "CONSTANT"
    return tf.pad(images, [[0, 0], edge, edge, [0, 0]], mode)


def cutout(images: Any, size: int, seed: Any) -> Any:
    """Blackens a square around a random pixel of each image (arXiv:1708.04552).

    Args:
      images: uint8 [N, 32, 32, 3].
      size: side of the square in pixels; at the border only the part inside counts.
      seed: int32 or int64 [2].

    Returns:
      uint8 [N, 32, 32, 3].
    """
    count = tf.shape(images)[0]
    row, column = (
        tf.random.stateless_uniform([count, 1], seed + [0, index], 0, side, tf.int32) - size // 2
        for index, side in ((4, HEIGHT), (5, WIDTH))
    )
    in_rows = tf.logical_and(tf.range(HEIGHT) >= row, tf.range(HEIGHT) < row + size)
    in_columns = tf.logical_and(tf.range(WIDTH) >= column, tf.range(WIDTH) < column + size)
    keep = tf.logical_not(tf.logical_and(in_rows[:, :, None], in_columns[:, None, :]))
    return images * tf.cast(keep, tf.uint8)[..., None]


# Shifts of `test_views` in pixels, down and right alike, and how much the answers count.
_TEST_SHIFTS, _TEST_WEIGHTS = (0, -1, 1), (0.5, 0.25, 0.25)


def test_views(images: Any) -> Any:
    """Each image as it is and moved by a pixel to and fro on the diagonal, and all that mirrored.

    The flip-and-shift test-time augmentation of airbench94 (Jordan 2024, arXiv:2404.00498, section
    3.6); what the shift uncovers mirrors the image.

    Args:
      images: uint8 [N, 32, 32, 3].

    Returns:
      uint8 [6 * N, 32, 32, 3]; the first N are the images themselves.
    """
    padded = _pad(images, 1, "reflect")
    shifted = [
        padded[:, 1 + shift : 1 + shift + HEIGHT, 1 + shift : 1 + shift + WIDTH]
        for shift in _TEST_SHIFTS
    ]
    return tf.concat([*shifted, *(one[:, :, ::-1] for one in shifted)], axis=0)


def mean_over_views(logits: Any) -> Any:
    """[6 * N, 10], for `test_views` -> [N, 10]: the images themselves count for half."""
    views = tf.reshape(logits, [2, len(_TEST_SHIFTS), -1, logits.shape[-1]])
    weights = tf.constant(_TEST_WEIGHTS, logits.dtype)[:, None, None]
    return tf.reduce_sum(tf.reduce_mean(views, axis=0) * weights, axis=0)
