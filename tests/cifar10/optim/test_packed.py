"""Weights: what a model asks for, and how it is stored, in a flat vector or as a variable each."""

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from cifar10.ops.variables import (
    BIAS,
    KERNEL,
    MEAN,
    NON_TRAINABLE,
    NORM,
    TRAINED_UNTIL,
    VARIANCE,
    SeparateVariables,
    Spec,
)
from cifar10.optim.packed import FlatVariable, Layout, Section, Slices

NORMAL = tf.variance_scaling_initializer(2.0, "fan_in", "truncated_normal")
ZEROS, ONES = tf.zeros_initializer(), tf.ones_initializer()


def spec(name: str, *shape: int, kind: str = KERNEL, initializer: object = ZEROS) -> Spec:
    return Spec(name, shape, initializer, kind)


def test_a_section_knows_where_each_value_lies():
    section = Section([spec("a", 2, 3), spec("b"), spec("c", 2)])
    assert (section.sizes, section.size) == ([6, 1, 2], 9)
    with tf.Graph().as_default(), tf.Session() as session:
        values = session.run(section.unpack(tf.range(9.0)))
    assert {name: value.tolist() for name, value in values.items()} == {
        "a": [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]],
        "b": 6.0,
        "c": [7.0, 8.0],
    }


def initial(name: str, *others: Spec, seed: int = 1, ops_before: int = 0) -> list[float]:
    """The initial value of a kernel [3, 4] in a graph among other things."""
    with tf.Graph().as_default(), tf.Session() as session:
        tf.set_random_seed(seed)
        for _ in range(ops_before):
            tf.random.uniform([])
        section = Section([*others, spec(name, 3, 4, initializer=NORMAL)])
        flat: np.ndarray = session.run(section.initial_value())
        return flat[-12:].tolist()


def test_an_initial_value_is_a_function_of_the_seed_and_the_name_alone():
    value = initial("model/conv/kernel")
    assert value == initial("model/conv/kernel", ops_before=3)
    other = spec("model/conv_1/kernel", 5, 5, initializer=NORMAL)
    assert value == initial("model/conv/kernel", other, spec("bias", 2))
    assert value != initial("model/conv_1/kernel")
    assert value != initial("model/conv/kernel", seed=2)
    assert len(set(value)) == 12


def test_kernels_come_first_and_all_means_before_all_variances():
    specs = [
        spec("conv/kernel", 2, 3),
        spec("norm/gamma", 3, kind=NORM),
        spec("norm/beta", 3, kind=NORM),
        spec("norm/moving_mean", 3, kind=MEAN),
        spec("norm/moving_variance", 3, kind=VARIANCE),
        spec("norm_1/gamma", 2, kind=NORM),
        # A layer may ask for its statistics in any order.
        spec("norm_1/moving_variance", 2, kind=VARIANCE),
        spec("norm_1/moving_mean", 2, kind=MEAN),
        spec("dense/kernel", 3, 1),
        spec("dense/bias", 1, kind=BIAS),
    ]
    layout = Layout(specs, {})
    assert [spec.name for spec in layout.weights.specs] == [
        "conv/kernel",
        "dense/kernel",
        "norm/gamma",
        "norm/beta",
        "norm_1/gamma",
        "dense/bias",
    ]
    assert layout.weights.size == 9 + 3 + 3 + 2 + 1
    assert [spec.name for spec in layout.statistics.specs] == [
        "norm/moving_mean",
        "norm_1/moving_mean",
        "norm/moving_variance",
        "norm_1/moving_variance",
    ]


def test_a_mean_without_its_variance_is_refused():
    specs = [
        spec("norm/moving_mean", 3, kind=MEAN),
        spec("norm_1/moving_variance", 3, kind=VARIANCE),
    ]
    with pytest.raises(ValueError, match="one of them is missing in norm, norm_1$"):
        Layout(specs, {})


def ten_numbers(*devices: str) -> FlatVariable:
    section = Section([spec("a", 2, 3, initializer=ONES), spec("b", 4)])
    return FlatVariable("packed", section, devices, trainable=True)


@pytest.mark.parametrize(
    ("count", "sizes"), [(1, [10]), (2, [5, 5]), (3, [3, 3, 4]), (4, [2, 3, 2, 3])]
)
def test_pieces_differ_by_one_number_at_most_and_lie_on_their_devices(count, sizes):
    with tf.Graph().as_default():
        flat = ten_numbers(*(f"/job:ps/task:{index}/cpu:0" for index in range(count)))
        assert [shard.shape[0] for shard in flat.shards] == sizes
        assert [shard.op.name for shard in flat.shards] == [f"packed_{i}" for i in range(count)]
        assert [shard.device for shard in flat.shards] == [
            f"/job:ps/task:{index}/device:CPU:0" for index in range(count)
        ]


def test_values_that_were_made_from_the_data_come_first_of_all():
    layout = Layout([spec("a", 2, initializer=ONES), spec("b", 2)], {"b": np.array([3.0, 4.0])})
    with tf.Graph().as_default(), tf.Session() as session:
        assert session.run(layout.weights.initial_value()).tolist() == [1.0, 1.0, 3.0, 4.0]


def test_what_is_fixed_has_no_gradient():
    fixed, free = spec("fixed", 2, kind=NON_TRAINABLE), spec("free", 2)
    with tf.Graph().as_default(), tf.Session() as session:
        flat = tf.constant([1.0, 2.0, 3.0, 4.0])
        slices = Slices(Section([fixed, free]), flat)
        product = slices.get(fixed) * slices.get(free)
        (gradient,) = tf.gradients(product, flat)
        assert session.run(gradient).tolist() == [0.0, 0.0, 1.0, 2.0]


def test_a_variable_of_its_own_that_is_fixed_does_not_train():
    with tf.Graph().as_default():
        source = SeparateVariables()
        source.get(Spec("fixed", (2,), ZEROS, NON_TRAINABLE))
        source.get(Spec("early", (2,), ZEROS, TRAINED_UNTIL))
        assert [variable.op.name for variable in tf.trainable_variables()] == ["early"]
