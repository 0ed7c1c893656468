"""A multi-layer perceptron with one hidden layer, for tests of everything but convolutions."""

from typing import Any

import tensorflow.compat.v1 as tf

from cifar10.models.layers import Layers
from cifar10.schema import IMAGE_BYTES, NUM_CLASSES


def mlp(layers: Layers, images: Any, hidden_units: int) -> Any:
    """Two dense layers with ReLU between.

    Args:
      layers: makes the layers.
      images: float32 [N, 32, 32, 3].
      hidden_units: width of the hidden layer.

    Returns:
      Logits float32 [N, 10].
    """
    x = tf.reshape(tf.cast(images, layers.compute_dtype), [-1, IMAGE_BYTES])
    x = layers.relu(layers.dense(x, hidden_units))
    return layers.dense(tf.cast(x, tf.float32), NUM_CLASSES)
