"""Trains an MLP with tf.estimator alone, for `benchmarks cluster` to compare with.

    TF_CONFIG=... python -m benchmarks.peers.stock_estimator STEPS OUTPUT_DIR

As in PS/worker demos: 3,072 inputs, 100 hidden units, batches of 100, Adam. Images are random and
come from memory; there are no summaries, and only a first and a last checkpoint.
"""

import sys
from typing import Any

from benchmarks.peers.tensorflow_step import NEVER, batches, run_settings, tf


def main() -> None:
    """Trains as the task that TF_CONFIG names."""
    tf.logging.set_verbosity(tf.logging.FATAL)
    steps, folder = int(sys.argv[1]), sys.argv[2]
    settings = run_settings(folder, experimental_max_worker_delay_secs=0)
    tf.estimator.train_and_evaluate(
        tf.estimator.Estimator(_model_fn, config=settings),
        tf.estimator.TrainSpec(lambda: batches(100), steps),
        tf.estimator.EvalSpec(lambda: batches(100), steps=10, throttle_secs=NEVER),
    )


def _model_fn(features: Any, labels: Any, mode: str) -> Any:
    hidden = tf.layers.dense(tf.layers.flatten(features), 100, tf.nn.relu)
    loss = tf.losses.softmax_cross_entropy(labels, tf.layers.dense(hidden, 10))
    train_op = tf.train.AdamOptimizer(1e-3).minimize(loss, tf.train.get_global_step())
    return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=train_op)


if __name__ == "__main__":
    main()
