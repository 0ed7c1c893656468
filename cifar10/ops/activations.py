"""Activations with gradients of their own.

GELU: TensorFlow has no op for it: its ten or so ops go through memory one after the other. XLA
makes a single loop of them, and one of the gradient's, computed in float32 and read and written in
the type of the activations.

ReLU: on a CPU TensorFlow converts bfloat16 to float32 and back for its gradient, number by number.
But a positive number in bfloat16 is a positive integer, too, if its bits are read as such.
"""

import contextlib
import functools
import math
from typing import Any, Callable

import tensorflow as tf2
import tensorflow.compat.v1 as tf

from cifar10.host.console import say, silence_native_code
from cifar10.tf_internals.output_buffer import with_own_buffer

_SLOPE = math.sqrt(2.0 / math.pi)
_CUBIC = 0.044715
_RELU_GRADIENT = "Cifar10ReluGradByIntegers"


def gelu(x: tf.Tensor, fuses: bool) -> tf.Tensor:
    """Computes x (1 + tanh(sqrt(2 / pi) (x + .044715 x^3))) / 2 (arXiv:1606.08415, section 2).

    Args:
      x: any shape; known, where XLA is not to compile it anew for each batch.
      fuses: whether XLA compiles it.

    Returns:
      The same shape and type.
    """
    forward, backward = _compiled(x.dtype) if fuses else (_forward, _backward)

    @tf.custom_gradient
    def with_gradient(x: tf.Tensor) -> Any:
        return forward(x), functools.partial(backward, x)

    return with_gradient(x)


def relu(x: tf.Tensor) -> tf.Tensor:
    """TensorFlow's ReLU of bfloat16, with a gradient that is computed as integers.

    Args:
      x: bfloat16, any shape.

    Returns:
      The same shape and type; NaN stays NaN.
    """
    with tf.get_default_graph().gradient_override_map({"Relu": _RELU_GRADIENT}):
        return tf.nn.relu(x)


@tf.RegisterGradient(_RELU_GRADIENT)
def _relu_gradient(op: Any, upstream: tf.Tensor) -> tf.Tensor:
    y, zero, one = op.outputs[0], tf.zeros([], tf.int16), tf.ones([], tf.int16)
    # With a buffer of its own, an op takes a fifth of the time: the loop for integers computes many
    # numbers at once only where it sees that it does not read what it has written.
    factor = with_own_buffer(
        tf.raw_ops.ClipByValue(t=tf.bitcast(y, tf.int16), clip_value_min=zero, clip_value_max=one)
    )
    return tf.bitcast(with_own_buffer(tf.bitcast(upstream, tf.int16) * factor), y.dtype)


def _forward(x: tf.Tensor) -> tf.Tensor:
    value = tf.cast(x, tf.float32)
    return tf.cast(0.5 * value * (1.0 + _tanh(value)), x.dtype)


def _backward(x: tf.Tensor, upstream: tf.Tensor) -> tf.Tensor:
    value = tf.cast(x, tf.float32)
    tanh = _tanh(value)
    slope = _SLOPE * (1.0 + 3.0 * _CUBIC * tf.square(value))
    derivative = 0.5 * (1.0 + tanh) + 0.5 * value * (1.0 - tf.square(tanh)) * slope
    return tf.cast(tf.cast(upstream, tf.float32) * derivative, x.dtype)


def _tanh(value: tf.Tensor) -> tf.Tensor:
    return tf.tanh(_SLOPE * value * (1.0 + _CUBIC * tf.square(value)))


@functools.cache
def _compiled(dtype: tf.DType) -> tuple[Callable[..., tf.Tensor], Callable[..., tf.Tensor]]:
    """Both, traced once: for each layer and tower anew, it is a third of the work on a graph."""
    return _compile(_forward, dtype, 1), _compile(_backward, dtype, 2)


def _compile(
    function: Callable[..., tf.Tensor], dtype: tf.DType, inputs: int
) -> Callable[..., tf.Tensor]:
    """Compiles for arguments of one type; they and the result have the same shape."""
    arguments = [tf.TensorSpec(None, dtype)] * inputs
    # In a graph of its own, where no device is set: it gets that of whoever calls it.
    with tf.Graph().as_default():
        compiled = tf2.function(function, jit_compile=True, autograph=False)
        traced = compiled.get_concrete_function(*arguments)

    def call(*values: tf.Tensor) -> tf.Tensor:
        result = traced(*values)
        result.set_shape(values[0].shape)
        return result

    return call


def compiles(device: str, session_config: Any, verbose: bool = False) -> bool:
    """Whether XLA compiles for a device: tries it with something small.

    On a GPU it needs files of CUDA that not every installation has where XLA looks for them
    (libdevice); training would end with its first step. On any device it announces its first
    compilation at any log level: here, where nobody hears it.

    Args:
      device: of a tower.
      session_config: the run's.
      verbose: lets XLA be heard.
    """
    quiet = contextlib.nullcontext() if verbose else silence_native_code()
    with quiet, tf.Graph().as_default(), tf.Session(config=session_config) as session:
        with tf.device(device):
            x = tf.placeholder(tf.float32, [1])  # A constant would be folded away.
            (slope,) = tf.gradients(gelu(x, fuses=True), [x])
        try:
            session.run(slope, {x: [0.0]})
        except tf.errors.OpError:
            say("XLA does not compile here: activations take one op after the other")
            return False
    return True
