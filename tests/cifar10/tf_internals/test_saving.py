"""Names of what is saved, on the real objects."""

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from cifar10.tf_internals import NamedTensors


def halves(flat: tf.Variable) -> NamedTensors:
    """A vector of four as two tensors of two."""
    first, second = tf.split(flat.read_value(), 2)
    return NamedTensors(
        flat,
        {"layer/kernel": first, "layer/bias": second},
        "flat",
        lambda restored: flat.assign(tf.concat(restored, 0)),
    )


@pytest.fixture
def saved(tmp_path) -> str:
    with tf.Graph().as_default(), tf.Session() as session:
        flat = tf.get_variable("flat", initializer=[1.0, 2.0, 3.0, 4.0], use_resource=True)
        step = tf.get_variable("step", initializer=7, use_resource=True)
        saver = tf.train.Saver([halves(flat), step])
        session.run(tf.global_variables_initializer())
        return str(saver.save(session, f"{tmp_path}/model.ckpt"))


def test_a_checkpoint_has_the_names_that_it_was_given_and_not_the_variables(saved):
    reader = tf.train.NewCheckpointReader(saved)
    assert reader.get_variable_to_shape_map() == {
        "layer/kernel": [2],
        "layer/bias": [2],
        "step": [],
    }
    np.testing.assert_array_equal(reader.get_tensor("layer/bias"), [3.0, 4.0])


def test_what_was_saved_is_assigned_by_the_function_that_was_given(saved):
    with tf.Graph().as_default(), tf.Session() as session:
        flat = tf.get_variable("flat", [4], use_resource=True)
        tf.train.Saver([halves(flat)]).restore(session, saved)
        assert session.run(flat).tolist() == [1.0, 2.0, 3.0, 4.0]
