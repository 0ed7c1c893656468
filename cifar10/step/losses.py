"""Cross-entropy, with or without smoothed labels."""

import tensorflow.compat.v1 as tf


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
