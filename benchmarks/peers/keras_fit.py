"""Trains the same network with the same batch size by Model.fit of tf.keras.

    python -m benchmarks.peers.keras_fit --network resnet-44 --precision bf16

Images come from memory, already float32 and standardised, and are not augmented, which is less work
than in cifar10_main.py. TensorFlow chooses the number of threads.
"""

import os
from typing import Any

# What the user has set stays. oneDNN as in our own runs.
os.environ.update({"TF_CPP_MIN_LOG_LEVEL": "3", "TF_ENABLE_ONEDNN_OPTS": "1", **os.environ})

import tensorflow as tf

from benchmarks.peers.networks import (
    GROUP_FILTERS,
    LOGIT_FACTOR,
    STAGE_FILTERS,
    WHITENING_FILTERS,
    StepTimes,
    peer_run,
)

layers = tf.keras.layers


def main() -> None:
    """Trains for the warm-up and the timed steps, and prints images/s as a JSON line."""
    network, precision = peer_run(__doc__)
    times = StepTimes(network)
    if precision == "bf16":
        tf.keras.mixed_precision.set_global_policy("mixed_bfloat16")
    model = _build(network.depth)
    model.compile(
        tf.keras.optimizers.SGD(0.1, network.momentum, nesterov=not network.depth),
        tf.keras.losses.CategoricalCrossentropy(
            from_logits=True, label_smoothing=network.label_smoothing
        ),
        jit_compile=False,
    )
    count = 8 * network.batch_size
    images, labels = tf.random.normal([count, 32, 32, 3]), tf.one_hot(tf.range(count) % 10, 10)
    data = tf.data.Dataset.from_tensor_slices((images, labels))
    data = data.batch(network.batch_size).cache().repeat().prefetch(2)
    model.fit(data, steps_per_epoch=times.total_steps, verbose=0, callbacks=[_StepCallback(times)])
    times.print_rate()


def _build(depth: int) -> Any:
    """Builds a tf.keras.Model: images float32 [N, 32, 32, 3] -> logits float32 [N, 10].

    Args:
      depth: number of layers of a ResNet v1; 0 builds fastnet.
    """
    image = layers.Input((32, 32, 3))
    if depth:
        logits = layers.Dense(10, dtype="float32")(_resnet(image, depth))
    else:
        logits = layers.Dense(10, use_bias=False, dtype="float32")(_fastnet(image)) * LOGIT_FACTOR
    return tf.keras.Model(image, logits)


def _conv(x: Any, filters: int, strides: int = 1) -> Any:
    return layers.Conv2D(filters, 3, strides, "same", use_bias=False)(x)


def _norm(x: Any, scale: bool = True) -> Any:
    return layers.BatchNormalization(scale=scale)(x)


def _resnet(image: Any, depth: int) -> Any:
    x = layers.ReLU()(_norm(_conv(image, STAGE_FILTERS[0])))
    for stage, filters in enumerate(STAGE_FILTERS):
        for block in range(depth // 6):
            strides, shortcut = 2 if stage and not block else 1, x
            if strides == 2:
                more = filters - STAGE_FILTERS[stage - 1]
                pooled = layers.AveragePooling2D(2)(x)
                shortcut = tf.pad(pooled, [[0, 0], [0, 0], [0, 0], [more // 2, more // 2]])
            x = layers.ReLU()(_norm(_conv(x, filters, strides)))
            x = layers.ReLU()(_norm(_conv(x, filters)) + shortcut)
    return layers.GlobalAveragePooling2D()(x)


def _fastnet(image: Any) -> Any:
    gelu = tf.nn.gelu
    x = layers.Activation(gelu)(layers.Conv2D(WHITENING_FILTERS, 2, trainable=False)(image))
    for filters in GROUP_FILTERS:
        x = layers.Activation(gelu)(_norm(layers.MaxPool2D(2)(_conv(x, filters)), scale=False))
        x = layers.Activation(gelu)(_norm(_conv(x, filters), scale=False))
    return layers.GlobalMaxPooling2D()(x)


class _StepCallback(tf.keras.callbacks.Callback):
    _supports_tf_logs = True  # Spares Keras converting each step's metrics to numpy.

    def __init__(self, times: StepTimes) -> None:
        super().__init__()
        self._times = times

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self._times.step_ended()


if __name__ == "__main__":
    main()
