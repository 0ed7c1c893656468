"""Random crops, flips and cutout of a whole batch at once, as a function of (seed, position).

All random numbers of a batch are drawn first. Then one gather takes each pixel of the batch from a
table of all pixels of the split, without a loop over images. The same seed and position give the
same image in every run, in a batch of any size.
"""

from typing import Any

import tensorflow.compat.v1 as tf

from cifar10.schema import CHANNELS, HEIGHT, WIDTH

_PIXELS = HEIGHT * WIDTH
# The constants of SplitMix64 (Steele et al. 2014).
_INCREMENT = 0x9E3779B97F4A7C15
_ROUNDS = ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB), (31, 1))


def words(numbers: Any) -> Any:
    """Returns the random words of the given numbers in SplitMix64's sequence with seed 0.

    Each word is computed from its number alone, so that an image's random numbers depend on its
    position and not on the other images of its batch.

    Args:
      numbers: the numbers, uint64 of any shape.

    Returns:
      uint64 of the shape of `numbers`.
    """
    state = numbers * tf.constant(_INCREMENT, tf.uint64)
    for shift, factor in _ROUNDS:
        shifted = tf.bitwise.right_shift(state, tf.constant(shift, tf.uint64))
        state = tf.bitwise.bitwise_xor(state, shifted) * tf.constant(factor, tf.uint64)
    return state


def draw(images: Any, random: Any, padding: int, flip: Any = None) -> Any:
    """Draws how each image of a batch is shifted and flipped, and the centre of its cutout.

    Args:
      images: the index in the split of each image, int64 [N].
      random: a random word per image, uint64 [N]; the image's numbers depend on it alone.
      padding: the most pixels by which a crop shifts an image, in each direction
        (4 in arXiv:1512.03385, section 4.2).
      flip: whether to flip each image, int [N] of 0 and 1; None: each is flipped with probability
        1/2.

    Returns:
      int64 [N, 6], per image: its index in the split; the crop's offsets of rows and of columns;
      whether to flip it; row and column of the centre of its cutout.
    """
    drawn = []
    # The last digits of the word, each in a base of its own. The product of the bases is below
    # 2**23, so the probabilities of two values of a digit differ by at most a share of 2**-41.
    for limit in (2, HEIGHT, WIDTH, 2 * padding + 1, 2 * padding + 1):
        base = tf.constant(limit, tf.uint64)
        drawn.append(tf.cast(random % base, tf.int64))
        random //= base
    flipped, row, column, down, right = drawn
    flip = flipped if flip is None else tf.cast(flip, tf.int64)
    shifts = (down - padding, right - padding)
    return tf.stack([tf.cast(images, tf.int64), *shifts, flip, row, column], axis=1)


def pixel_table(images: Any) -> Any:
    """Makes a table of a split's pixels and, last, a black one.

    Args:
      images: uint8 [N, 32, 32, 3].

    Returns:
      uint8 [1024 * N + 1, 3].
    """
    pixels = tf.reshape(images, [images.shape[0] * _PIXELS, CHANNELS])
    return tf.concat([pixels, tf.zeros([1, CHANNELS], tf.uint8)], axis=0)


def render(pixels: Any, drawn: Any, fill: str = "zeros", cutout: int = 0) -> Any:
    """Makes the augmented images of a batch, as in arXiv:1512.03385 and 1708.04552.

    Args:
      pixels: the `pixel_table` of the split, uint8 [P, 3].
      drawn: the random numbers of each image, int64 [N, 6], see `draw`.
      fill: how pixels that a shift uncovers are filled: `zeros`, or `reflect`, which mirrors the
        image at its outermost pixels.
      cutout: the side of the black square, in pixels; the part outside the image is dropped.

    Returns:
      uint8 [N, 32, 32, 3].
    """
    image, down, right, flip, row, column = (drawn[:, index, None] for index in range(6))
    rows, columns = tf.range(HEIGHT, dtype=tf.int64), tf.range(WIDTH, dtype=tf.int64)
    source_rows = rows + down  # [N, 32]
    source_columns = tf.where_v2(flip > 0, WIDTH - 1 - columns, columns) + right  # [N, 32]
    black = []  # bool [N, 32, 32] each
    if fill == "reflect":
        source_rows = _mirror(source_rows, HEIGHT)
        source_columns = _mirror(source_columns, WIDTH)
    else:
        black.append(
            _outside(source_rows, 0, HEIGHT)[:, :, None]
            | _outside(source_columns, 0, WIDTH)[:, None, :]
        )
    if cutout:
        kept_rows, kept_columns = (
            _outside(numbers, centre - cutout // 2, centre - cutout // 2 + cutout)
            for numbers, centre in ((rows, row), (columns, column))
        )
        black.append(~(kept_rows[:, :, None] | kept_columns[:, None, :]))
    sources = (image * _PIXELS + source_rows * WIDTH)[:, :, None] + source_columns[:, None, :]
    last = tf.constant(int(pixels.shape[0]) - 1, tf.int64)
    for mask in black:
        sources = tf.where_v2(mask, last, sources)
    return tf.gather(pixels, sources)


def _mirror(numbers: Any, size: int) -> Any:
    """Reflects numbers below 0 or above size - 1, by less than `size`, into [0, size - 1]."""
    return size - 1 - tf.abs(size - 1 - tf.abs(numbers))


def _outside(numbers: Any, start: Any, end: Any) -> Any:
    return (numbers < start) | (numbers >= end)


# Test-time augmentation shows an image in all views if the logits of its two likeliest classes are
# closer than this. The others' answers are so certain that more views change next to none of them.
_UNCERTAIN = 2.0
# Shifts of `test_views` in pixels, both down and right, and the weights of their logits.
_TEST_SHIFTS, _TEST_WEIGHTS = (0, -1, 1), (0.5, 0.25, 0.25)


def uncertain(logits: Any) -> Any:
    """Finds the images whose likeliest class is less than 7.4 times as likely as the second.

    Args:
      logits: float [N, classes].

    Returns:
      The images' indices in the batch, int64 [n].
    """
    best = tf.math.top_k(logits, 2).values
    return tf.where(best[:, 0] - best[:, 1] < _UNCERTAIN)[:, 0]


def test_views(images: Any) -> Any:
    """Makes six views of each image: unshifted, shifted twice along a diagonal, and mirrored.

    This is the flip-and-shift test-time augmentation of airbench94 (Jordan 2024, arXiv:2404.00498,
    section 3.6). The shifts are one pixel down and right, and one up and left; uncovered pixels
    mirror the image.

    Args:
      images: uint8 [N, 32, 32, 3].

    Returns:
      uint8 [6 * N, 32, 32, 3]; the first N are the images themselves.
    """
    shifted = []
    for shift in _TEST_SHIFTS:  # tf.pad refuses a batch without images.
        rows, columns = (_mirror(tf.range(size) + shift, size) for size in (HEIGHT, WIDTH))
        shifted.append(tf.gather(tf.gather(images, rows, axis=1), columns, axis=2))
    return tf.concat([*shifted, *(view[:, :, ::-1] for view in shifted)], axis=0)


def mean_over_views(logits: Any) -> Any:
    """Averages the logits of `test_views`; the unshifted views have half of the weight.

    Args:
      logits: float [6 * N, classes].

    Returns:
      float [N, classes].
    """
    views = tf.reshape(logits, [2, len(_TEST_SHIFTS), -1, logits.shape[-1]])
    weights = tf.constant(_TEST_WEIGHTS, logits.dtype)[:, None, None]
    return tf.reduce_sum(tf.reduce_mean(views, axis=0) * weights, axis=0)
