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

import functools
import os
import tempfile
import warnings
from typing import Any

# What the user has set stays. oneDNN as in our own runs.
os.environ.update({"TF_CPP_MIN_LOG_LEVEL": "3", "TF_ENABLE_ONEDNN_OPTS": "1", **os.environ})

import tensorflow as tf2
import tensorflow.compat.v1 as tf

from benchmarks.peers import networks
from benchmarks.peers.networks import Network, StepTimes, peer_run

_DEVICES = 2
NEVER = 10**9


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

    class StepCallback(tf2.keras.callbacks.Callback):
        _supports_tf_logs = True  # Spares Keras converting each step's metrics to numpy.

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            times.step_ended()

    image = keras.layers.Input((32, 32, 3))
    model = keras.Model(image, _logits(image, network, keras.layers))
    model.compile(
        keras.optimizers.SGD(0.1, network.momentum, nesterov=not network.depth),
        keras.losses.CategoricalCrossentropy(True, network.label_smoothing),  # from logits
        jit_compile=False,
    )
    data = batches(network.batch_size)
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
        settings = run_settings(
            folder,
            train_distribute=tf2.distribute.MirroredStrategy(
                [f"/cpu:{index}" for index in range(_DEVICES)],
                # The default, collective all-reduce, deadlocks where TensorFlow has fewer threads
                # than gradients to reduce.
                tf2.distribute.ReductionToOneDevice(),
            ),
            session_config=session_config,
        )
        trainer = tf.estimator.Estimator(_model_fn, config=settings, params=network)
        input_fn = functools.partial(batches, network.batch_size // _DEVICES)
        trainer.train(input_fn, [StepHook()], max_steps=times.total_steps)


def _model_fn(features: Any, labels: Any, mode: str, params: Network) -> Any:
    logits = _logits(features, params, tf.layers)
    smoothing = {"label_smoothing": params.label_smoothing}
    losses = tf.losses.softmax_cross_entropy(labels, logits, **smoothing, reduction="none")
    loss = tf.reduce_sum(losses) / params.batch_size
    optimizer = tf.train.MomentumOptimizer(0.1, params.momentum, use_nesterov=not params.depth)
    with tf.control_dependencies(tf.get_collection(tf.GraphKeys.UPDATE_OPS)):
        train_op = optimizer.minimize(loss, tf.train.get_global_step())
    return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=train_op)


def _logits(x: Any, network: Network, layers: Any) -> Any:
    """Returns logits float32 [N, 10] of images float32 [N, 32, 32, 3].

    Args:
      x: the images.
      network: the network.
      layers: the module of the layers, Keras' or tf.layers.
    """

    def conv(x: Any, filters: int, strides: int = 1) -> Any:
        return layers.Conv2D(filters, 3, strides, "same", use_bias=False)(x)

    def norm(x: Any) -> Any:
        return layers.BatchNormalization(scale=bool(network.depth))(x, training=True)

    if not network.depth:
        gelu = tf2.nn.gelu
        x = gelu(layers.Conv2D(networks.WHITENING_FILTERS, 2, trainable=False)(x))
        for filters in networks.GROUP_FILTERS:
            x = gelu(norm(tf2.nn.max_pool2d(conv(x, filters), 2, 2, "VALID")))
            x = gelu(norm(conv(x, filters)))
        dense = layers.Dense(10, use_bias=False, dtype="float32")
        return dense(tf.reduce_max(x, axis=[1, 2])) * networks.LOGIT_FACTOR
    x = tf.nn.relu(norm(conv(x, networks.STAGE_FILTERS[0])))
    for stage, filters in enumerate(networks.STAGE_FILTERS):
        for block in range(network.depth // 6):
            strides, shortcut = 2 if stage and not block else 1, x
            if strides == 2:
                half = (filters - networks.STAGE_FILTERS[stage - 1]) // 2
                pooled = tf2.nn.avg_pool2d(x, 2, 2, "VALID")
                shortcut = tf.pad(pooled, [[0, 0], [0, 0], [0, 0], [half, half]])
            x = tf.nn.relu(norm(conv(x, filters, strides)))
            x = tf.nn.relu(norm(conv(x, filters)) + shortcut)
    return layers.Dense(10, dtype="float32")(tf.reduce_mean(x, axis=[1, 2]))


def run_settings(folder: str, **more: Any) -> Any:
    """Returns a RunConfig without summaries and with a first and a last checkpoint only."""
    steps = ("save_checkpoints_steps", "save_summary_steps", "log_step_count_steps")
    return tf.estimator.RunConfig(folder, **dict.fromkeys(steps, NEVER), **more)


def batches(size: int) -> Any:
    """Returns a dataset of images float32 [size, 32, 32, 3] and one-hot labels, from memory."""
    count = 8 * size
    images, labels = tf.random.normal([count, 32, 32, 3]), tf.one_hot(tf.range(count) % 10, 10)
    data = tf2.data.Dataset.from_tensor_slices((images, labels))
    return data.batch(size, drop_remainder=True).cache().repeat().prefetch(2)


if __name__ == "__main__":
    main()
