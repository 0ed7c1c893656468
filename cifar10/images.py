"""Encoded images -> what the model takes, in the graph: the same for prediction and export."""

from typing import Any

import tensorflow as tf2
import tensorflow.compat.v1 as tf

from cifar10.schema import CHANNELS, HEIGHT, WIDTH


@tf.autograph.experimental.do_not_convert
def decode_batch(encoded: Any) -> Any:
    """PNG or JPEG bytes [N] -> uint8 [N, 32, 32, 3]; other sizes are resampled."""
    # With its shape, so that no images at all are [0, 32, 32, 3].
    image = tf.TensorSpec([HEIGHT, WIDTH, CHANNELS], tf.uint8)
    return tf.map_fn(decode, encoded, fn_output_signature=image)


@tf.autograph.experimental.do_not_convert
def decode(encoded: Any) -> Any:
    """PNG or JPEG bytes, a scalar -> uint8 [32, 32, 3].

    An image of another size is resampled with antialiasing, without regard to its proportions.
    """
    image = tf.io.decode_image(encoded, CHANNELS, expand_animations=False)
    image.set_shape([None, None, CHANNELS])
    resized = tf2.image.resize(image, [HEIGHT, WIDTH], antialias=True)
    return tf.saturate_cast(tf.round(resized), tf.uint8)
