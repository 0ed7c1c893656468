"""Finds out whether `cifar10.ops.kernels` supports any convolution of a model."""

import functools

import tensorflow.compat.v1 as tf

from cifar10 import models
from cifar10.config.train_config import TrainConfig
from cifar10.ops.convolution import fits_kernels
from cifar10.ops.layers import Layers
from cifar10.schema import CHANNELS, HEIGHT, WIDTH
from cifar10.weights.spec import Recorder


def has_own_convolutions(config: TrainConfig, data_format: str) -> bool:
    """Returns whether `cifar10.ops.kernels` supports at least one convolution of the model.

    The compiled library is not needed. The first call builds the model's graph, which takes a
    quarter of a second for 44 layers.

    Args:
      config: the settings, which name the model.
      data_format: the layout of its images, `channels_last` or `channels_first`.
    """
    # Only the settings that shapes depend on are kept, so that each model is built once.
    shape = models.find(config.model).shape(config)
    return _has_own_convolutions(TrainConfig(model=config.model, **shape), data_format)


@functools.cache
def _has_own_convolutions(config: TrainConfig, data_format: str) -> bool:
    with tf.Graph().as_default() as graph:
        layers = Layers(training=True, data_format=data_format, source=Recorder())
        models.network(config)(layers, tf.zeros([1, HEIGHT, WIDTH, CHANNELS]))
        return any(_is_own(op) for op in graph.get_operations() if op.type == "Conv2D")


def _is_own(op: tf.Operation) -> bool:
    x, weights = op.inputs
    settings = {
        "strides": list(op.get_attr("strides")),
        "padding": op.get_attr("padding").decode(),
        "data_format": op.get_attr("data_format").decode(),
    }
    return fits_kernels(x, weights, settings)
