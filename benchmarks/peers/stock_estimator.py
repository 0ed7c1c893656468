"""Trains an MLP with tf.estimator alone, for `benchmarks cluster` to compare with.

    TF_CONFIG=... python -m benchmarks.clusters.stock_estimator STEPS OUTPUT_DIR

As in PS/worker demos: 3,072 inputs, 100 hidden units, batches of 100, Adam. Images and labels are
random and come from memory; there are no summaries, and only a first and a last checkpoint.
"""

import os
import sys
from typing import Any

import numpy as np

# What the user has set stays. oneDNN as in our own runs.
os.environ.update({"TF_CPP_MIN_LOG_LEVEL": "3", "TF_ENABLE_ONEDNN_OPTS": "1", **os.environ})

import tensorflow.compat.v1 as tf

_NEVER = 10**9


def main() -> None:
    """Trains as the task that TF_CONFIG names."""
    tf.logging.set_verbosity(tf.logging.FATAL)
    steps, folder = int(sys.argv[1]), sys.argv[2]
    settings = tf.estimator.RunConfig(
        model_dir=folder,
        save_checkpoints_steps=_NEVER,
        save_summary_steps=_NEVER,
        log_step_count_steps=_NEVER,
        experimental_max_worker_delay_secs=0,
    )
    tf.estimator.train_and_evaluate(
        tf.estimator.Estimator(_model_fn, config=settings),
        tf.estimator.TrainSpec(_batches, steps),
        tf.estimator.EvalSpec(_batches, steps=10, throttle_secs=_NEVER),
    )


def _model_fn(features: Any, labels: Any, mode: str) -> Any:
    logits = tf.layers.dense(tf.layers.dense(features, 100, tf.nn.relu), 10)
    loss = tf.losses.sparse_softmax_cross_entropy(labels, logits)
    train_op = None
    if mode == tf.estimator.ModeKeys.TRAIN:
        train_op = tf.train.AdamOptimizer(1e-3).minimize(loss, tf.train.get_global_step())
    return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=train_op)


def _batches() -> Any:
    random = np.random.default_rng(0)
    images = tf.constant(random.normal(size=(100, 3_072)).astype(np.float32))
    labels = tf.constant(random.integers(0, 10, 100))
    return tf.data.Dataset.from_tensors((images, labels)).repeat().prefetch(2)


if __name__ == "__main__":
    main()
