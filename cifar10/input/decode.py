"""Encoded images -> what the model takes, in the graph: the same for prediction and export."""

from typing import Any

import tensorflow as tf2
import tensorflow.compat.v1 as tf

from cifar10.schema import CHANNELS, HEIGHT, WIDTH


@tf.autograph.experimental.do_not_convert
def decode_batch(encoded: Any) -> Any:
    """PNG or JPEG bytes [N] -> uint8 [N, 32, 32, 3]; other sizes are resampled."""
    # With its shape, so that an empty batch is [0, 32, 32, 3].
    image = tf.TensorSpec([HEIGHT, WIDTH, CHANNELS], tf.uint8)
    return tf.map_fn(decode, encoded, fn_output_signature=image)


@tf.autograph.experimental.do_not_convert
def decode(encoded: Any) -> Any:
    """PNG or JPEG bytes, a scalar -> uint8 [32, 32, 3].

    A JPEG has the pixels that Pillow gives data_prep, to the last bit: both have libjpeg's exact
    transformation and smooth colours that were stored at half the size. TensorFlow's default is a
    faster transformation, whose pixels differ by up to 7 of 255 levels.

    An image of another size is resampled with antialiasing, without regard to its proportions.
    """
    # This op takes PNGs, too; decode_image knows no dct_method.
    image = tf.io.decode_jpeg(
        encoded, CHANNELS, fancy_upscaling=True, dct_method="INTEGER_ACCURATE"
    )
    image.set_shape([None, None, CHANNELS])
    resized = tf2.image.resize(image, [HEIGHT, WIDTH], antialias=True)
    return tf.saturate_cast(tf.round(resized), tf.uint8)
