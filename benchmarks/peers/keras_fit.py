"""tf.keras: Model.fit of the same network and batch.

    python -m benchmarks.peers.keras_fit --network resnet-44 --precision bf16

Images come from memory, already float32 and standardised, and are not augmented: less work than
cifar10_main.py does for them. Threads are TensorFlow's own choice.
"""

import os
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import tensorflow as tf

from benchmarks.networks import GROUP_FILTERS, STAGE_FILTERS, WHITENING_FILTERS, peer_arguments
from benchmarks.peers.timing import StepTimes

layers = tf.keras.layers


def main() -> None:
    """Trains for some steps and prints a JSON line."""
    arguments = peer_arguments(__doc__)
    times = StepTimes(arguments.steps)
    if arguments.precision == "bf16":
        tf.keras.mixed_precision.set_global_policy("mixed_bfloat16")
    model = _build(arguments.depth)
    model.compile(
        tf.keras.optimizers.SGD(0.1, 0.9),
        tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        jit_compile=False,
    )
    images = tf.random.normal([8 * arguments.batch_size, 32, 32, 3])
    labels = tf.zeros([8 * arguments.batch_size], tf.int32)
    data = tf.data.Dataset.from_tensor_slices((images, labels))
    data = data.batch(arguments.batch_size).cache().repeat().prefetch(2)
    model.fit(data, steps_per_epoch=times.total_steps, verbose=0, callbacks=[_StepCallback(times)])
    times.print_rate(arguments.batch_size)


def _build(depth: int) -> Any:
    """A tf.keras.Model: images float32 [N, 32, 32, 3] -> logits float32 [N, 10].

    Args:
      depth: layers of a resnet v1; 0: the fast net.
    """
    image = layers.Input((32, 32, 3))
    features = _resnet(image, depth) if depth else _fastnet(image)
    return tf.keras.Model(image, layers.Dense(10, dtype="float32")(features))


def _conv(x: Any, filters: int, strides: int = 1) -> Any:
    return layers.Conv2D(filters, 3, strides, "same", use_bias=False)(x)


def _norm(x: Any) -> Any:
    return layers.BatchNormalization()(x)


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
    x = layers.Activation(gelu)(layers.Conv2D(WHITENING_FILTERS, 2)(image))
    for filters in GROUP_FILTERS:
        x = layers.Activation(gelu)(_norm(layers.MaxPool2D(2)(_conv(x, filters))))
        x = layers.Activation(gelu)(_norm(_conv(x, filters)))
    return layers.GlobalMaxPooling2D()(x)


class _StepCallback(tf.keras.callbacks.Callback):
    _supports_tf_logs = True  # Keras need not copy the figures of each step for it.

    def __init__(self, times: StepTimes) -> None:
        super().__init__()
        self._times = times

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self._times.step_ended()


if __name__ == "__main__":
    main()
