"""ResNets for 32x32 images: 6n+2 layers, three stages of 16, 32 and 64 filters, basic blocks.

v1: He et al. 2015, arXiv:1512.03385, section 4.2, with parameter-free shortcuts (option A).
v2: He et al. 2016, arXiv:1603.05027: normalisation and ReLU before each convolution.
"""

import functools
from typing import Any, Callable, Optional

import tensorflow.compat.v1 as tf

from cifar10.models.layers import Layers, he_initializer
from cifar10.schema import NUM_CLASSES

STAGE_FILTERS = (16, 32, 64)
Block = Callable[[Layers, Any, int, int, float], Any]


def default_residual_scale(num_layers: int) -> float:
    """1 / the square root of the blocks of a stage; see `residual_scale` of the resnets."""
    return float((num_layers // 6) ** -0.5)


def _shortcut(layers: Layers, x: Any, filters: int, strides: int) -> Any:
    """Identity, or average-pooling and zero channels where the shape changes."""
    if strides == 1:
        return x
    return layers.pad_channels(layers.average_pool(x, strides), filters)


def _block_v1(layers: Layers, x: Any, filters: int, strides: int, scale: float) -> Any:
    y = layers.relu(layers.batch_norm(layers.conv(x, filters, 3, strides)))
    y = layers.batch_norm(layers.conv(y, filters, 3), first_scale=scale)
    return layers.relu(y + _shortcut(layers, x, filters, strides))


def _block_v2(layers: Layers, x: Any, filters: int, strides: int, scale: float) -> Any:
    y = layers.relu(layers.batch_norm(x))
    y = layers.conv(y, filters, 3, strides)
    y = layers.relu(layers.batch_norm(y))
    y = layers.conv(y, filters, 3, initializer=he_initializer(scale))
    return y + _shortcut(layers, x, filters, strides)


def _resnet(
    layers: Layers,
    images: Any,
    num_layers: int,
    block: Block,
    preactivation: bool,
    residual_scale: Optional[float] = None,
) -> Any:
    """Builds a resnet.

    Args:
      layers: makes the layers.
      images: float32 [N, 32, 32, 3].
      num_layers: 6n+2; n blocks a stage.
      block: `_block_v1` or `_block_v2`.
      preactivation: the blocks normalise their input, so the stem does not and the head does.
      residual_scale: what each block adds to its shortcut is multiplied by this at first, in the
        block's last scale (v1) or kernel (v2); 1: as in the articles. None: 1 / the square root of
        the blocks of a stage, so that activations do not grow with depth (Hayou et al. 2021,
        arXiv:2010.12859).

    Returns:
      Logits float32 [N, 10].

    Raises:
      ValueError: num_layers is not 6n+2.
    """
    if num_layers < 8 or num_layers % 6 != 2:
        raise ValueError(f"num_layers must be 6n+2 (8, 14, 20, 32, 44, ...), got {num_layers}")
    if residual_scale is None:
        residual_scale = default_residual_scale(num_layers)
    with tf.variable_scope("stem"):
        x = layers.conv(layers.cast_images(images), STAGE_FILTERS[0], 3)  # [N, 32, 32, 16]
        if not preactivation:
            x = layers.relu(layers.batch_norm(x))
    for stage, filters in enumerate(
        STAGE_FILTERS
    ):  # [N, 32, 32, 16], [N, 16, 16, 32], [N, 8, 8, 64]
        for index in range(num_layers // 6):
            with tf.variable_scope(f"stage_{stage}/block_{index}"):
                strides = 2 if stage and not index else 1
                x = block(layers, x, filters, strides, residual_scale)
    with tf.variable_scope("head"):
        if preactivation:
            x = layers.relu(layers.batch_norm(x))
        x = layers.global_average_pool(x)  # float32 [N, 64]
        return layers.dense(x, NUM_CLASSES)


resnet = functools.partial(_resnet, block=_block_v1, preactivation=False)
resnet_v2 = functools.partial(_resnet, block=_block_v2, preactivation=True)
