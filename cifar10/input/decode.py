"""Decodes PNG and JPEG images in the graph, in the same way for prediction and export."""

from typing import Any

import tensorflow as tf2
import tensorflow.compat.v1 as tf

from cifar10.schema import CHANNELS, HEIGHT, WIDTH


@tf.autograph.experimental.do_not_convert
def decode_batch(encoded: Any) -> Any:
    """Decodes PNG or JPEG bytes, string [N], to uint8 [N, 32, 32, 3]; resamples other sizes."""
    # The shape is given so that an empty batch becomes [0, 32, 32, 3].
    image = tf.TensorSpec([HEIGHT, WIDTH, CHANNELS], tf.uint8)
    return tf.map_fn(decode, encoded, fn_output_signature=image)


@tf.autograph.experimental.do_not_convert
def decode(encoded: Any) -> Any:
    """Decodes PNG or JPEG bytes, a string scalar, to uint8 [32, 32, 3].

    The pixels of a JPEG equal those that Pillow gives data_prep, to the last bit: both use
    libjpeg's exact transformation and smooth colours that were stored at half the resolution.
    TensorFlow's default is a faster transformation, whose pixels differ by up to 7 of 255 levels.

    An image of another size is resampled with antialiasing, without keeping its aspect ratio.
    """
    # This op decodes PNGs, too; decode_image has no dct_method.
    image = tf.io.decode_jpeg(
        encoded, CHANNELS, fancy_upscaling=True, dct_method="INTEGER_ACCURATE"
    )
    image.set_shape([None, None, CHANNELS])
    resized = tf2.image.resize(image, [HEIGHT, WIDTH], antialias=True)
    return tf.saturate_cast(tf.round(resized), tf.uint8)
