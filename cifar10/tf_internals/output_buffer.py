"""Where an op writes its output.

Touches: the node attribute `_forward_input`, and `_set_attr` of an op, which sets it.

Why: TensorFlow lets many ops write their output over an input that nobody else needs. Its executor
reads from this attribute which input an op may overwrite. XLA's and other graph passes set it;
there is no public way to do so.
"""

import tensorflow.compat.v1 as tf

_NO_INPUT = -2  # `kNeverForward` in op_kernel.h of TensorFlow


def with_own_buffer(tensor: tf.Tensor) -> tf.Tensor:
    """Forbids the op of a tensor, its only output, to write it over one of the op's inputs.

    Args:
      tensor: of a graph that has not run yet.

    Returns:
      The tensor.
    """
    pairs = tf.AttrValue.ListValue(i=[_NO_INPUT, 0])  # (input, output)
    tensor.op._set_attr("_forward_input", tf.AttrValue(list=pairs))
    return tensor
