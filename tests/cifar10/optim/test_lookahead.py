"""Lookahead against the same rule in numpy, by hand."""

import numpy as np
import tensorflow.compat.v1 as tf

from cifar10.optim.lookahead import Lookahead


def test_every_few_steps_the_weights_are_pulled_to_their_average():
    # Each step adds 1 to the one weight; 7 steps in all, a pull after the 2nd, 4th and 6th.
    average, weight, expected = 10.0, 10.0, []
    for step in range(1, 8):
        weight += 1.0
        if step % 2 == 0:
            decay = 0.95**2 * (step / 7) ** 3
            average = weight = decay * average + (1 - decay) * weight
        if step == 7:  # training ends with the average
            weight = average
        expected.append(weight)
    with tf.Graph().as_default(), tf.Session() as session:
        piece = tf.get_variable("w", initializer=[10.0], use_resource=True)
        step = tf.train.create_global_step()
        lookahead = Lookahead(2, [piece], total_steps=7)
        with tf.control_dependencies([piece.assign_add([1.0]), step.assign_add(1)]):
            pulled = lookahead.pull(step.read_value())
        session.run(tf.global_variables_initializer())
        assert session.run(lookahead.averages[0]).tolist() == [10.0]
        assert tf.trainable_variables() == [piece]  # No optimizer trains an average.
        found = []
        for _ in range(7):
            session.run(pulled)
            found.append(float(session.run(piece)[0]))
    np.testing.assert_allclose(found, expected, rtol=1e-6)
