"""The weights that layers request, and how the requests are recorded."""

import tensorflow.compat.v1 as tf

from cifar10.weights.spec import KERNEL, MEAN, Recorder, Spec

ZEROS = tf.zeros_initializer()


def test_a_recorder_takes_down_what_a_model_asks_for():
    recorder = Recorder()
    asked = [
        Spec("conv/kernel", (2, 3), ZEROS, KERNEL),
        Spec("norm/moving_mean", (3,), ZEROS, MEAN),
    ]
    with tf.Graph().as_default():
        shapes = [recorder.get(one).shape.as_list() for one in asked]
        assert tf.global_variables() == []
    assert recorder.specs == asked
    assert shapes == [[2, 3], [3]]
