"""Adam with decoupled weight decay (Loshchilov & Hutter, arXiv:1711.05101), by TensorFlow."""

from typing import Any

from cifar10.models.base import Rate
from cifar10.optim.base import Optimizer


class Adam(Optimizer):
    """Adam, which divides a gradient by its magnitude."""

    name = "adam"
    follows_scale = False
    decouples_decay = True

    def build(self, config: Any, rate: Any, layout: Any) -> Any:
        """Makes TensorFlow's optimizer."""
        import tensorflow.compat.v1 as tf

        return tf.train.AdamOptimizer(rate)

    def rate(self, of_model: Rate) -> Rate:
        """Returns one rate for all batches: the noise of small ones does not lengthen a step."""
        return Rate(0.001, None)


ADAM = Adam()
