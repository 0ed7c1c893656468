"""Streaming metrics that tf.metrics does not have."""

import tensorflow.compat.v1 as tf

from cifar10.schema import NUM_CLASSES


def confusion_matrix(labels: tf.Tensor, classes: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Counts (true class, predicted class) pairs over all batches.

    Args:
      labels: the true classes, int64 [N].
      classes: the predicted classes, int64 [N].

    Returns:
      (value, update), each int64 [10, 10]: the rows are true classes, the columns predicted ones.
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
