"""Decodes images in the graph of an export, to the pixels that `cifar10.image_file` gives.

TensorFlow has no op for WEBP, for BMP files of fewer than 24 bits per pixel, and for EXIF data. Its
op for GIF returns the first picture without the canvas around it.
"""

from typing import Any

import tensorflow as tf2
import tensorflow.compat.v1 as tf

from cifar10.schema import CHANNELS, CROP, HEIGHT, PAD, STRETCH, WIDTH

_BMP_DEPTH = 28  # place of the bits per pixel in a BMP file
_GIF_CANVAS = 6  # place of the canvas's width and height in a GIF, two bytes each


@tf.autograph.experimental.do_not_convert
def decode_batch(encoded: Any, resize: str = STRETCH) -> Any:
    """Decodes image files' contents, string [N], to uint8 [N, 32, 32, 3]: see `decode`."""
    # The shape is given so that an empty batch becomes [0, 32, 32, 3].
    image = tf.TensorSpec([HEIGHT, WIDTH, CHANNELS], tf.uint8)
    return tf.map_fn(lambda one: decode(one, resize), encoded, fn_output_signature=image)


@tf.autograph.experimental.do_not_convert
def decode(encoded: Any, resize: str = STRETCH) -> Any:
    """Decodes the content of a PNG, JPEG, GIF or BMP file to uint8 [32, 32, 3].

    The pixels of a JPEG equal those of Pillow to the last bit: both use libjpeg's exact
    transformation and smooth colours that were stored at half the resolution. TensorFlow's default
    is a faster transformation, whose pixels differ by up to 7 of 255 levels.

    An image of another size is resized with antialiasing; a level may differ by one from Pillow's.

    Args:
      encoded: the content, a string scalar.
      resize: how an image of another size is brought to 32x32, a value of `schema.RESIZES`.

    Raises:
      tf.errors.InvalidArgumentError: the content is damaged or of another format, or the first
        picture of a GIF is smaller than its canvas.
    """
    image = tf.cond(
        _is_gif_or_bmp(encoded),
        lambda: _decode_gif_or_bmp(encoded),
        # This op decodes PNGs, too, and refuses what is left. decode_image has no dct_method.
        lambda: tf.io.decode_jpeg(
            encoded, CHANNELS, fancy_upscaling=True, dct_method="INTEGER_ACCURATE"
        ),
    )
    image.set_shape([None, None, CHANNELS])
    return _fit(image, resize)


def _is_gif_or_bmp(encoded: Any) -> Any:
    """Returns a bool tensor: whether `decode_image` must decode a content.

    That op must not decode BMP files with a palette: it takes colours' numbers for shades of grey.
    """
    head = tf.strings.join(
        [tf.strings.substr(encoded, 0, _BMP_DEPTH + 1), b"\0" * (_BMP_DEPTH + 1)]
    )
    depth = tf.strings.substr(head, _BMP_DEPTH, 1)
    has_colours = tf.logical_or(tf.equal(depth, bytes([24])), tf.equal(depth, bytes([32])))
    is_bmp = tf.equal(tf.strings.substr(head, 0, 2), b"BM")
    return tf.logical_or(_is_gif(head), tf.logical_and(is_bmp, has_colours))


def _decode_gif_or_bmp(encoded: Any) -> Any:
    """Returns uint8 [height, width, 3]: the first picture of a GIF, or a BMP."""
    image = tf.io.decode_image(encoded, CHANNELS, expand_animations=False)
    sides = tf.shape(image)[:2]
    width_and_height = tf.io.decode_raw(tf.strings.substr(encoded, _GIF_CANVAS, 4), tf.uint16)
    # A picture that is larger than its canvas is whole, in Pillow, too.
    canvas = tf.where(_is_gif(encoded), tf.cast(width_and_height, tf.int32)[::-1], sides)
    rule = "the first picture of a GIF must fill its canvas"
    with tf.control_dependencies([tf.debugging.assert_less_equal(canvas, sides, message=rule)]):
        return tf.identity(image)


def _is_gif(encoded: Any) -> Any:
    return tf.equal(tf.strings.substr(encoded, 0, 3), b"GIF")


def _fit(image: Any, resize: str) -> Any:
    """Brings an image, uint8 [height, width, 3], to 32x32 as `image_file` does."""
    sides = tf.shape(image)[:2]
    inner = tf.constant([HEIGHT, WIDTH])
    if resize == CROP:
        side = tf.reduce_min(sides)
        first = (sides - side) // 2
        image = image[first[0] : first[0] + side, first[1] : first[1] + side]
    elif resize == PAD:
        wide, longer = tf.cast(sides, tf.int64), tf.cast(tf.reduce_max(sides), tf.int64)
        scaled = (2 * wide * [HEIGHT, WIDTH] + longer) // (2 * longer)
        inner = tf.cast(tf.maximum(scaled, 1), tf.int32)
    resized = tf2.image.resize(image, inner, antialias=True)
    pixels = tf.saturate_cast(tf.round(resized), tf.uint8)
    if resize == PAD:
        before = (tf.constant([HEIGHT, WIDTH]) - inner) // 2
        pixels = tf.image.pad_to_bounding_box(pixels, before[0], before[1], HEIGHT, WIDTH)
    pixels.set_shape([HEIGHT, WIDTH, CHANNELS])
    return pixels
