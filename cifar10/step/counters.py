"""The counters that every task of a job shares: training images seen, and the global step."""

import tensorflow.compat.v1 as tf

EXAMPLES_SEEN = "examples_seen"


def examples_seen(device: str) -> tf.Variable:
    """The variable that counts training images, an int64 scalar; made by the first call.

    Args:
      device: where it lives, the same in all tasks.
    """
    with tf.device(device), tf.variable_scope("", reuse=tf.AUTO_REUSE):
        return tf.get_variable(
            EXAMPLES_SEEN, [], tf.int64, tf.zeros_initializer(), trainable=False, use_resource=True
        )
