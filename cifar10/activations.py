"""GELU with a gradient of its own, each a single loop over the numbers where XLA compiles it.

TensorFlow has no op for GELU: its ten or so ops go through memory one after the other, and oneDNN's
rewrite to bfloat16 leaves those of `tf.nn.gelu`'s gradient in float32. Compiled, it is computed in
float32 and read and written in the type of the activations.
"""

import contextlib
import functools
import math
from typing import Any, Callable

import tensorflow as tf2
import tensorflow.compat.v1 as tf

from cifar10.console import say, silence_native_code
from cifar10.devices import DevicePlan

Tensor = Any

_SLOPE = math.sqrt(2.0 / math.pi)
_CUBIC = 0.044715


def gelu(x: Tensor, fuses: bool) -> Tensor:
    """Computes x (1 + tanh(sqrt(2 / pi) (x + .044715 x^3))) / 2 (arXiv:1606.08415, section 2).

    Args:
      x: any shape; known, where XLA is not to compile it anew for each batch.
      fuses: whether XLA compiles it.

    Returns:
      The same shape and type.
    """
    forward, backward = _compiled() if fuses else (_forward, _backward)

    @tf.custom_gradient
    def with_gradient(x: Tensor) -> Any:
        return forward(x), functools.partial(backward, x)

    return with_gradient(x)


def _forward(x: Tensor) -> Tensor:
    value = tf.cast(x, tf.float32)
    return tf.cast(0.5 * value * (1.0 + _tanh(value)), x.dtype)


def _backward(x: Tensor, upstream: Tensor) -> Tensor:
    value = tf.cast(x, tf.float32)
    tanh = _tanh(value)
    slope = _SLOPE * (1.0 + 3.0 * _CUBIC * tf.square(value))
    derivative = 0.5 * (1.0 + tanh) + 0.5 * value * (1.0 - tf.square(tanh)) * slope
    return tf.cast(tf.cast(upstream, tf.float32) * derivative, x.dtype)


def _tanh(value: Tensor) -> Tensor:
    return tf.tanh(_SLOPE * value * (1.0 + _CUBIC * tf.square(value)))


@functools.cache
def _compiled() -> tuple[Callable[..., Tensor], Callable[..., Tensor]]:
    forward, backward = (
        tf2.function(function, jit_compile=True, autograph=False)
        for function in (_forward, _backward)
    )
    return forward, backward


def compiles(plan: DevicePlan, verbose: bool = False) -> bool:
    """Whether XLA compiles for the towers' devices: tries it with something small.

    On a GPU it needs files of CUDA that not every installation has where XLA looks for them
    (libdevice); training would end with its first step. On any device it announces its first
    compilation at any log level: here, where nobody hears it.

    Args:
      plan: this machine's devices.
      verbose: lets XLA be heard.
    """
    quiet = contextlib.nullcontext() if verbose else silence_native_code()
    config = plan.session_config
    with quiet, tf.Graph().as_default(), tf.Session(config=config) as session:
        with tf.device(plan.tower_devices[0]):
            x = tf.placeholder(tf.float32, [1])  # A constant would be folded away.
            (slope,) = tf.gradients(gelu(x, fuses=True), [x])
        try:
            session.run(slope, {x: [0.0]})
        except tf.errors.OpError:
            say("XLA does not compile here: activations take one op after the other")
            return False
    return True
