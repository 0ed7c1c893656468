"""TensorFlow's executor still heeds the attribute that keeps an op's output apart."""

from typing import Any, Callable

import numpy as np
import tensorflow.compat.v1 as tf

from cifar10.tf_internals.output_buffer import with_own_buffer


def addresses(change: Callable[[tf.Tensor], Any]) -> tuple[int, int]:
    """Where the sums are that only a product needs, and where the product is."""
    with tf.Graph().as_default(), tf.Session() as session:
        x = tf.placeholder(tf.float32, [1000])
        product = tf.multiply(tf.cumsum(x, name="sums"), x, "product")
        change(product)
        metadata, options = tf.RunMetadata(), tf.RunOptions(trace_level=tf.RunOptions.FULL_TRACE)
        session.run(product.op, {x: np.ones([1000])}, options, metadata)
    found = {
        node.node_name: output.tensor_description.allocation_description.ptr
        for device in metadata.step_stats.dev_stats
        for node in device.node_stats
        for output in node.output
    }
    return found["sums"], found["product"]


def test_a_product_is_written_over_what_only_it_needs():
    sums, product = addresses(lambda tensor: tensor)
    assert sums == product != 0


def test_an_op_with_a_buffer_of_its_own_writes_over_no_input():
    sums, product = addresses(with_own_buffer)
    assert 0 not in (sums, product)
    assert sums != product


def test_the_tensor_itself_is_given_back():
    with tf.Graph().as_default():
        tensor = tf.identity(1.0)
        assert with_own_buffer(tensor) is tensor
