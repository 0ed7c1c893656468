"""Random crops, flips and cutout of a whole batch at once, as a function of (seed, position).

A batch is cropped and flipped by one gather of its pixels and cut out by one select; there is no
loop over images. The same seed and position give the same picture in every run, also in one that
continues from a checkpoint.
"""

from typing import Any

import tensorflow.compat.v1 as tf

from cifar10.schema import CHANNELS, HEIGHT, WIDTH

PADDING = 4  # pixels of zeros on each side before the crop, as in arXiv:1512.03385, section 4.2


def crop_and_flip(images: Any, seed: Any) -> Any:
    """Pads by 4 zeros, crops 32x32 at a random place, flips left to right every second time.

    Args:
      images: uint8 [N, 32, 32, 3].
      seed: int32 or int64 [2].

    Returns:
      uint8 [N, 32, 32, 3].
    """
    count = tf.shape(images)[0]
    top, left = (
        tf.random.stateless_uniform([count], seed + [0, index], 0, 2 * PADDING + 1, tf.int32)
        for index in (1, 2)
    )
    flip = tf.random.stateless_uniform([count], seed + [0, 3], 0, 2, tf.int32)
    rows = top[:, None] + tf.range(HEIGHT)  # [N, 32], of the padded image
    columns = tf.range(WIDTH)
    columns = tf.where_v2(flip[:, None] > 0, WIDTH - 1 - columns, columns)  # [N, 32]
    columns = left[:, None] + columns  # [N, 32]
    padded_height, padded_width = HEIGHT + 2 * PADDING, WIDTH + 2 * PADDING
    image = tf.range(count) * (padded_height * padded_width)
    pixels = (image[:, None] + rows * padded_width)[:, :, None] + columns[:, None, :]  # [N, 32, 32]
    edge = [PADDING, PADDING]
    padded = tf.pad(images, [[0, 0], edge, edge, [0, 0]])
    return tf.gather(tf.reshape(padded, [-1, CHANNELS]), pixels)


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
