"""Zero padding of convolutions."""

from typing import Any

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from cifar10.ops.layers import Layers


@pytest.mark.parametrize(
    ("strides", "seen"),
    [
        (1, [[4, 6, 6, 4], [6, 9, 9, 6], [6, 9, 9, 6], [4, 6, 6, 4]]),
        # PyTorch's padding=1 and the tutorial's padding would give [[4, 6], [6, 9]].
        (2, [[9, 6], [6, 4]]),
    ],
)
def test_at_stride_2_an_even_side_has_its_zeros_behind_it(strides: int, seen: Any) -> None:
    # Image and weights are ones, so a result counts the weights that lie on the image.
    with tf.Graph().as_default(), tf.Session() as session:
        ones = tf.ones_initializer()
        y = Layers(training=True).conv(tf.ones([1, 4, 4, 1]), 1, 3, strides, initializer=ones)
        session.run(tf.global_variables_initializer())
        np.testing.assert_allclose(session.run(y)[0, :, :, 0], seen)
