"""Streaming metrics that tf.metrics has not."""

import tensorflow.compat.v1 as tf

from cifar10.schema import NUM_CLASSES


def confusion_matrix(labels: tf.Tensor, classes: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Counts (true class, predicted class) pairs over all batches.

    Args:
      labels: int64 [N].
      classes: int64 [N].

    Returns:
      (value, update): int64 [10, 10], rows true, columns predicted.
    """
    total = tf.get_variable(
        "confusion_matrix",
        [NUM_CLASSES, NUM_CLASSES],
        tf.int64,
        tf.zeros_initializer(),
        trainable=False,
        collections=[tf.GraphKeys.LOCAL_VARIABLES, tf.GraphKeys.METRIC_VARIABLES],
        use_resource=True,
    )
    batch = tf.math.confusion_matrix(labels, classes, NUM_CLASSES, tf.int64)
    return total.read_value(), total.assign_add(batch, read_value=True)
