"""Weights that are a variable each."""

import tensorflow.compat.v1 as tf

from cifar10.weights.separate import SeparateVariables
from cifar10.weights.spec import EARLY, FIXED, KERNEL, MEAN, Spec

ZEROS = tf.zeros_initializer()


def test_separate_variables_are_made_and_read_once_whatever_the_number_of_towers():
    with tf.Graph().as_default() as graph:
        source = SeparateVariables()
        for _ in range(3):
            with tf.variable_scope("conv", reuse=tf.AUTO_REUSE):
                source.get(Spec("conv/kernel", (2,), ZEROS, KERNEL))
                source.get(Spec("conv/moving_mean", (2,), ZEROS, MEAN))
        assert [one.op.name for one in tf.trainable_variables()] == ["conv/kernel"]
        assert [one.op.name for one in tf.global_variables()] == ["conv/kernel", "conv/moving_mean"]
        reads = [op.name for op in graph.get_operations() if op.name.endswith("ReadVariableOp")]
    # One that tf.get_variable makes of its own accord, and the one that all towers share.
    assert len(reads) == 2 * 2


def test_separate_variables_lie_where_they_are_placed_whatever_the_towers_device():
    with tf.Graph().as_default():
        source = SeparateVariables("/cpu:3")
        with tf.device("/cpu:1"):
            value = source.get(Spec("kernel", (2,), ZEROS, KERNEL))
        assert [one.device for one in tf.global_variables()] == ["/device:CPU:3"]
        assert value.device == "/device:CPU:3"


def test_a_variable_of_its_own_that_is_fixed_does_not_train():
    with tf.Graph().as_default():
        source = SeparateVariables()
        source.get(Spec("fixed", (2,), ZEROS, FIXED))
        source.get(Spec("early", (2,), ZEROS, EARLY))
        assert [one.op.name for one in tf.trainable_variables()] == ["early"]
