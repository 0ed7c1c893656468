"""The training split in the memory of the devices that train, and batches made from it there.

The host then sends no images, only what was drawn for each of them (48 bytes in the place of
3,072). The pictures are bit for bit those that the host would make. CIFAR-10's 45,000 training
images take 138 MB on each device.
"""

from collections.abc import Sequence
from typing import Any

import tensorflow.compat.v1 as tf

from cifar10.config.train_config import TrainConfig
from cifar10.input import augment
from cifar10.models import Model
from cifar10.schema import CHANNELS, HEIGHT, WIDTH
from cifar10.step.towers import machine_of


class ResidentSplit:
    """A split on every device that has towers, its labels on the machine's CPU.

    It is in variables of no collection: no checkpoint holds them, and `hook` fills them whenever a
    session begins.

    Args:
      split: a data set of one element, images uint8 [count, 32, 32, 3] and labels int64 [count].
      count: images in it.
      devices: of the towers.
      config: how images are distorted.
    """

    def __init__(
        self, split: tf.data.Dataset, count: int, devices: Sequence[str], config: TrainConfig
    ) -> None:
        self._config = config
        with tf.device(machine_of(devices[0])):
            images, labels = split.get_single_element()
            pixels = augment.pixel_table(tf.ensure_shape(images, [count, HEIGHT, WIDTH, CHANNELS]))
            self._labels = _variable("resident/labels", tf.ensure_shape(labels, [count]))
        self._pixels: dict[str, Any] = {}
        for index, device in enumerate(dict.fromkeys(devices)):
            with tf.device(device):
                variable = _variable(f"resident/pixels_{index}", pixels)
            self._pixels[variable.device] = variable

    def hook(self) -> Any:
        """Fills the variables when a session begins, on each trainer."""
        return _LoadHook([self._labels, *self._pixels.values()])

    def labels(self, drawn: tf.Tensor) -> tf.Tensor:
        """Labels of a batch: int64 [N, 6] -> int64 [N]."""
        with tf.device(self._labels.device):
            return tf.gather(self._labels, drawn[:, 0])

    def images(self, drawn: tf.Tensor) -> tf.Tensor:
        """Pictures of a batch, made on the device that is asked: int64 [N, 6] -> [N, 32, 32, 3]."""
        here = tf.identity(drawn)
        pixels = self._pixels[here.device]
        return augment.render(pixels, here, self._config.crop_fill, self._config.cutout)

    def feed(self, model: Model) -> Model:
        """Wraps a model of images so that it takes what was drawn for them."""
        return lambda layers, drawn: model(layers, self.images(drawn))


def _variable(name: str, value: tf.Tensor) -> Any:
    return tf.get_variable(
        name, initializer=value, trainable=False, collections=[], use_resource=True
    )


class _LoadHook(tf.train.SessionRunHook):
    """Fills variables when a session begins.

    Attributes:
      load: the op that does.
    """

    def __init__(self, variables: Sequence[Any]) -> None:
        # In one run, so that the records are read once for all of them.
        self.load = tf.group(*(variable.initializer for variable in variables))

    def after_create_session(self, session: Any, coord: Any) -> None:
        """Runs it."""
        session.run(self.load)
