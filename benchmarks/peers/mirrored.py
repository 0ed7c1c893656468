"""Trains by MirroredStrategy under Estimator: half of the batch on each of two logical CPU devices.

    python -m benchmarks.peers.mirrored --network resnet-44 --precision bf16

This is what Estimator's documentation recommends for several devices in one process, with the
layers that Estimator programs use, tf.layers. Images come from memory, already float32 and
standardised, and are not augmented; there are no summaries, and only a first and a last checkpoint.
bf16 is done by oneDNN's graph rewrite. TensorFlow chooses the number of threads.
"""

import os
import tempfile
import warnings
from typing import Any

# What the user has set stays. oneDNN as in our own runs.
os.environ.update({"TF_CPP_MIN_LOG_LEVEL": "3", "TF_ENABLE_ONEDNN_OPTS": "1", **os.environ})

import tensorflow as tf2
import tensorflow.compat.v1 as tf

from benchmarks.peers.networks import (
    GROUP_FILTERS,
    LOGIT_FACTOR,
    STAGE_FILTERS,
    WHITENING_FILTERS,
    Network,
    StepTimes,
    peer_run,
)

_DEVICES = 2
_NEVER = 10**9


def main() -> None:
    """Trains for the warm-up and the timed steps, and prints images/s as a JSON line."""
    network, precision = peer_run(__doc__)
    times = StepTimes(network)
    tf.logging.set_verbosity(tf.logging.FATAL)
    warnings.filterwarnings("ignore")
    (cpu,) = tf2.config.list_physical_devices("CPU")
    devices = [tf2.config.LogicalDeviceConfiguration() for _ in range(_DEVICES)]
    tf2.config.set_logical_device_configuration(cpu, devices)
    session_config = tf.ConfigProto(allow_soft_placement=True)
    if precision == "bf16":
        session_config.graph_options.rewrite_options.auto_mixed_precision_onednn_bfloat16 = 1
    with tempfile.TemporaryDirectory() as folder:
        settings = tf.estimator.RunConfig(
            model_dir=folder,
            train_distribute=tf2.distribute.MirroredStrategy(
                [f"/cpu:{index}" for index in range(_DEVICES)],
                # The default, collective all-reduce, deadlocks where TensorFlow has fewer threads
                # than gradients to reduce.
                tf2.distribute.ReductionToOneDevice(),
            ),
            session_config=session_config,
            save_checkpoints_steps=_NEVER,
            save_summary_steps=_NEVER,
            log_step_count_steps=_NEVER,
        )
        trainer = tf.estimator.Estimator(_model_fn, config=settings, params=network)
        trainer.train(
            lambda: _batches(network.batch_size // _DEVICES),
            hooks=[_StepHook(times)],
            max_steps=times.total_steps,
        )
    times.print_rate()


def _model_fn(features: Any, labels: Any, mode: str, params: Network) -> Any:
    if params.depth:
        logits = tf.layers.dense(_resnet(features, params.depth), 10)
    else:
        logits = tf.layers.dense(_fastnet(features), 10, use_bias=False) * LOGIT_FACTOR
    losses = tf.losses.softmax_cross_entropy(
        labels, logits, label_smoothing=params.label_smoothing, reduction="none"
    )
    loss = tf.reduce_sum(losses) / params.batch_size
    optimizer = tf.train.MomentumOptimizer(0.1, params.momentum, use_nesterov=not params.depth)
    with tf.control_dependencies(tf.get_collection(tf.GraphKeys.UPDATE_OPS)):
        train_op = optimizer.minimize(loss, tf.train.get_global_step())
    return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=train_op)


def _conv(x: Any, filters: int, strides: int = 1) -> Any:
    return tf.layers.conv2d(x, filters, 3, strides, "same", use_bias=False)


def _norm(x: Any, scale: bool = True) -> Any:
    return tf.layers.batch_normalization(x, scale=scale, training=True, fused=True)


def _resnet(x: Any, depth: int) -> Any:
    x = tf.nn.relu(_norm(_conv(x, STAGE_FILTERS[0])))
    for stage, filters in enumerate(STAGE_FILTERS):
        for block in range(depth // 6):
            strides, shortcut = 2 if stage and not block else 1, x
            if strides == 2:
                half = (filters - STAGE_FILTERS[stage - 1]) // 2
                pooled = tf.layers.average_pooling2d(x, 2, 2)
                shortcut = tf.pad(pooled, [[0, 0], [0, 0], [0, 0], [half, half]])
            x = tf.nn.relu(_norm(_conv(x, filters, strides)))
            x = tf.nn.relu(_norm(_conv(x, filters)) + shortcut)
    return tf.reduce_mean(x, axis=[1, 2])


def _fastnet(x: Any) -> Any:
    gelu = tf2.nn.gelu
    x = gelu(tf.layers.conv2d(x, WHITENING_FILTERS, 2, trainable=False))
    for filters in GROUP_FILTERS:
        x = gelu(_norm(tf.layers.max_pooling2d(_conv(x, filters), 2, 2), scale=False))
        x = gelu(_norm(_conv(x, filters), scale=False))
    return tf.reduce_max(x, axis=[1, 2])


def _batches(size: int) -> Any:
    count = 8 * size
    images, labels = tf.random.normal([count, 32, 32, 3]), tf.one_hot(tf.range(count) % 10, 10)
    data = tf.data.Dataset.from_tensor_slices((images, labels))
    return data.batch(size, drop_remainder=True).cache().repeat().prefetch(2)


class _StepHook(tf.train.SessionRunHook):
    def __init__(self, times: StepTimes) -> None:
        self._times = times

    def after_run(self, run_context: Any, run_values: Any) -> None:
        self._times.step_ended()


if __name__ == "__main__":
    main()
