"""Trains the same network with the same batch size in TensorFlow, by Keras or MirroredStrategy.

    python -m benchmarks.peers.tensorflow_step --way keras --network resnet-44 --precision bf16

Images come from memory, already float32 and normalized, and are not augmented, which is less work
than in cifar10_main.py. TensorFlow chooses the number of threads.

  keras     Model.fit of tf.keras; bf16 by the policy mixed_bfloat16.
  mirrored  MirroredStrategy under Estimator: half of the batch on each of two logical CPU devices,
            which is what Estimator's documentation recommends for several devices in one process,
            with the layers that Estimator programs use, tf.layers. There are no summaries, and only
            a first and a last checkpoint. bf16 by oneDNN's graph rewrite.
"""

import os
import tempfile
import warnings
from typing import Any, Callable

# What the user has set stays. oneDNN as in our own runs.
os.environ.update({"TF_CPP_MIN_LOG_LEVEL": "3", "TF_ENABLE_ONEDNN_OPTS": "1", **os.environ})

import tensorflow as tf2
import tensorflow.compat.v1 as tf

from benchmarks.peers import networks
from benchmarks.peers.networks import Network, StepTimes, peer_run

_DEVICES = 2
_NEVER = 10**9
Layer = Callable[..., Any]


def main() -> None:
    """Trains for the warm-up and the timed steps, and prints images/s as a JSON line."""
    network, arguments = peer_run(__doc__, ways=("keras", "mirrored"))
    times = StepTimes(network)
    train = _by_keras if arguments.way == "keras" else _by_mirrored_strategy
    train(network, arguments.precision, times)
    times.print_rate()


def _by_keras(network: Network, precision: str, times: StepTimes) -> None:
    keras = tf2.keras
    if precision == "bf16":
        keras.mixed_precision.set_global_policy("mixed_bfloat16")

    def conv(x: Any, filters: int, size: int = 3, **more: Any) -> Any:
        return keras.layers.Conv2D(filters, size, **more)(x)

    def norm(x: Any, scale: bool) -> Any:
        return keras.layers.BatchNormalization(scale=scale)(x)

    def dense(x: Any, use_bias: bool) -> Any:
        return keras.layers.Dense(10, use_bias=use_bias, dtype="float32")(x)

    class StepCallback(tf2.keras.callbacks.Callback):
        _supports_tf_logs = True  # Spares Keras converting each step's metrics to numpy.

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            times.step_ended()

    image = keras.layers.Input((32, 32, 3))
    model = keras.Model(image, _logits(image, network, conv, norm, dense))
    model.compile(
        keras.optimizers.SGD(0.1, network.momentum, nesterov=not network.depth),
        keras.losses.CategoricalCrossentropy(
            from_logits=True, label_smoothing=network.label_smoothing
        ),
        jit_compile=False,
    )
    data = _batches(network.batch_size)
    model.fit(data, steps_per_epoch=times.total_steps, verbose=0, callbacks=[StepCallback()])


def _by_mirrored_strategy(network: Network, precision: str, times: StepTimes) -> None:
    tf.logging.set_verbosity(tf.logging.FATAL)
    warnings.filterwarnings("ignore")
    (cpu,) = tf2.config.list_physical_devices("CPU")
    devices = [tf2.config.LogicalDeviceConfiguration() for _ in range(_DEVICES)]
    tf2.config.set_logical_device_configuration(cpu, devices)
    session_config = tf.ConfigProto(allow_soft_placement=True)
    if precision == "bf16":
        session_config.graph_options.rewrite_options.auto_mixed_precision_onednn_bfloat16 = 1

    class StepHook(tf.train.SessionRunHook):
        def after_run(self, run_context: Any, run_values: Any) -> None:
            times.step_ended()

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
            hooks=[StepHook()],
            max_steps=times.total_steps,
        )


def _model_fn(features: Any, labels: Any, mode: str, params: Network) -> Any:
    def conv(x: Any, filters: int, size: int = 3, **more: Any) -> Any:
        return tf.layers.conv2d(x, filters, size, **more)

    def norm(x: Any, scale: bool) -> Any:
        return tf.layers.batch_normalization(x, scale=scale, training=True, fused=True)

    def dense(x: Any, use_bias: bool) -> Any:
        return tf.layers.dense(x, 10, use_bias=use_bias)

    logits = _logits(features, params, conv, norm, dense)
    losses = tf.losses.softmax_cross_entropy(
        labels, logits, label_smoothing=params.label_smoothing, reduction="none"
    )
    loss = tf.reduce_sum(losses) / params.batch_size
    optimizer = tf.train.MomentumOptimizer(0.1, params.momentum, use_nesterov=not params.depth)
    with tf.control_dependencies(tf.get_collection(tf.GraphKeys.UPDATE_OPS)):
        train_op = optimizer.minimize(loss, tf.train.get_global_step())
    return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=train_op)


def _logits(x: Any, network: Network, conv: Layer, norm: Layer, dense: Layer) -> Any:
    """Returns logits float32 [N, 10] of images float32 [N, 32, 32, 3]."""
    if not network.depth:
        return dense(_fastnet(x, conv, norm), use_bias=False) * networks.LOGIT_FACTOR
    return dense(_resnet(x, network.depth, conv, norm), use_bias=True)


def _resnet(x: Any, depth: int, conv: Layer, norm: Layer) -> Any:
    def normed(x: Any, filters: int, strides: int = 1) -> Any:
        return norm(conv(x, filters, strides=strides, padding="same", use_bias=False), scale=True)

    x = tf.nn.relu(normed(x, networks.STAGE_FILTERS[0]))
    for stage, filters in enumerate(networks.STAGE_FILTERS):
        for block in range(depth // 6):
            strides, shortcut = 2 if stage and not block else 1, x
            if strides == 2:
                half = (filters - networks.STAGE_FILTERS[stage - 1]) // 2
                pooled = tf2.nn.avg_pool2d(x, 2, 2, "VALID")
                shortcut = tf.pad(pooled, [[0, 0], [0, 0], [0, 0], [half, half]])
            x = tf.nn.relu(normed(x, filters, strides))
            x = tf.nn.relu(normed(x, filters) + shortcut)
    return tf.reduce_mean(x, axis=[1, 2])


def _fastnet(x: Any, conv: Layer, norm: Layer) -> Any:
    gelu = tf2.nn.gelu
    x = gelu(conv(x, networks.WHITENING_FILTERS, 2, trainable=False))
    for filters in networks.GROUP_FILTERS:
        x = conv(x, filters, padding="same", use_bias=False)
        x = gelu(norm(tf2.nn.max_pool2d(x, 2, 2, "VALID"), scale=False))
        x = gelu(norm(conv(x, filters, padding="same", use_bias=False), scale=False))
    return tf.reduce_max(x, axis=[1, 2])


def _batches(size: int) -> Any:
    count = 8 * size
    images, labels = tf.random.normal([count, 32, 32, 3]), tf.one_hot(tf.range(count) % 10, 10)
    data = tf2.data.Dataset.from_tensor_slices((images, labels))
    return data.batch(size, drop_remainder=True).cache().repeat().prefetch(2)


if __name__ == "__main__":
    main()
