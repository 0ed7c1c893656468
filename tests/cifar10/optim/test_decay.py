"""Weight decay, rate factors and lookahead against the same rules in numpy, by hand."""

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from cifar10 import optim
from cifar10.config.train_config import TrainConfig
from cifar10.ops.variables import Spec
from cifar10.optim import decay
from cifar10.optim.decay import DecayRules, Lookahead
from cifar10.optim.packed import FlatVariable, Layout
from tests.cifar10 import steps

# A kernel, a bias, an offset of a normalisation, and a weight that trains early.
KINDS = ("trained until", "offset", "bias", "kernel")
LAYOUT = Layout([Spec(kind, (1,), tf.ones_initializer(), kind) for kind in KINDS], {})


def decays(layout: Layout, optimizer: str = "momentum", decay_biases: bool = False) -> list[float]:
    config = TrainConfig(weight_decay=0.5, decay_biases=decay_biases)
    rules = DecayRules(optim.find(optimizer), config)
    # No two weights are alike, nor two gradients: each gets the decay of its own.
    weights = tf.range(1.0, layout.weights.size + 1.0)
    gradient = 64.0 * weights
    added = (decay.scale_and_decay(rules, layout, gradient, weights) - gradient) / weights
    # Adam, whose decay is not a part of the gradient, has the same decays.
    np.testing.assert_array_equal(layout.weights.constant(rules.decay), added)
    return added.numpy().tolist()


def test_only_kernels_decay_unless_biases_are_to():
    # A kernel, a bias, an offset, and what trains in the first epochs only.
    assert decays(LAYOUT) == [0.5, 0.0, 0.0, 0.0]
    assert decays(LAYOUT, decay_biases=True) == [0.5, 0.5, 0.5, 0.0]


def test_muons_convolutions_do_not_decay():
    ones = tf.ones_initializer()
    specs = [
        Spec("conv", (1, 1, 1, 3), ones, "kernel"),
        Spec("dense", (2, 1), ones, "kernel"),
        Spec("bias", (1,), ones, "bias"),
    ]
    layout = Layout(specs, {})
    assert decays(layout, optimizer="muon") == [0.0] * 3 + [0.5] * 2 + [0.0]
    assert decays(layout, optimizer="nesterov") == [0.5] * 5 + [0.0]


def test_offsets_alone_have_a_rate_of_their_own():
    rules = DecayRules(optim.find("momentum"), TrainConfig(norm_bias_rate=64.0))
    scaled = decay.scale_and_decay(rules, LAYOUT, tf.range(1.0, 5.0), None)
    assert scaled.numpy().tolist() == [1.0, 2.0, 64.0 * 3.0, 4.0]


def test_adams_weights_decay_once_the_gradient_is_known():
    # Else the gradient of another tower might be that of weights that have decayed already.
    with tf.Graph().as_default() as graph:
        weights = FlatVariable("w", LAYOUT.weights, ["/cpu:0"], trainable=True)
        gradient = tf.placeholder(tf.float32, [4], name="gradient")
        rules = DecayRules(optim.find("adam"), TrainConfig())
        decay.decoupled(rules, weights, [gradient], tf.constant(0.1))
        (decayed,) = (op for op in graph.get_operations() if op.type == "AssignSubVariableOp")
        assert gradient.op in steps.ops_before(decayed)


@pytest.mark.parametrize("every", [2, 10])
def test_every_few_steps_the_weights_are_pulled_to_their_average(every):
    # Each step adds 1 to the one weight; 7 steps in all, a pull after the 2nd, 4th and 6th or none.
    average, weight, expected = 10.0, 10.0, []
    for step in range(1, 8):
        weight += 1.0
        if step % every == 0:
            decay = 0.95**every * (step / 7) ** 3
            average = weight = decay * average + (1 - decay) * weight
        if step == 7 and every < 7:  # training ends with the average
            weight = average
        expected.append(weight)
    with tf.Graph().as_default(), tf.Session() as session:
        shard = tf.get_variable("w", initializer=[10.0], use_resource=True)
        step = tf.train.create_global_step()
        lookahead = Lookahead(every, [shard], total_steps=7)
        with tf.control_dependencies([shard.assign_add([1.0]), step.assign_add(1)]):
            pulled = lookahead.pull(step.read_value())
        session.run(tf.global_variables_initializer())
        assert session.run(lookahead.averages[0]).tolist() == [10.0]
        assert tf.trainable_variables() == [shard]  # No optimizer trains an average.
        found = []
        for _ in range(7):
            session.run(pulled)
            found.append(float(session.run(shard)[0]))
    np.testing.assert_allclose(found, expected, rtol=1e-6)
