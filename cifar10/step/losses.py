"""Cross-entropy, with or without smoothed labels, and counts of mistakes."""

import tensorflow.compat.v1 as tf

from cifar10.schema import NUM_CLASSES


def cross_entropy(labels: tf.Tensor, logits: tf.Tensor, smoothing: float = 0.0) -> tf.Tensor:
    """Returns the cross-entropy of each image in nats, float32 [N].

    Args:
      labels: the true classes, int64 [N].
      logits: float32 [N, 10].
      smoothing: the share of each label that is spread evenly over all classes, including the true
        one (Szegedy et al. 2015, arXiv:1512.00567, section 7).
    """
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)
    if not smoothing:
        return losses
    of_all = -tf.reduce_mean(tf.nn.log_softmax(logits), axis=1)
    return (1.0 - smoothing) * losses + smoothing * of_all


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
