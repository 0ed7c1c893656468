"""Slots of an update rule of our own are known to TensorFlow."""

import tensorflow.compat.v1 as tf

from cifar10.tf_internals.optimizer_slots import OptimizerWithSlots


def test_a_slot_is_zero_at_first_and_found_by_public_api_and_in_checkpoints():
    with tf.Graph().as_default(), tf.Session() as session:
        weights = tf.get_variable("weights", initializer=[1.0, 2.0], use_resource=True)
        rule = OptimizerWithSlots(use_locking=False, name="Rule")
        (slot,) = rule.zeros_slots([weights], "momentum")
        session.run(tf.global_variables_initializer())
        assert session.run(slot).tolist() == [0.0, 0.0]
        assert slot.op.name == "weights/Rule"
        assert rule.get_slot_names() == ["momentum"]
        assert rule.get_slot(weights, "momentum") is slot
        assert tf.trainable_variables() == [weights]


def test_a_slot_is_made_once():
    with tf.Graph().as_default():
        weights = tf.get_variable("weights", [2], use_resource=True)
        rule = OptimizerWithSlots(use_locking=False, name="Rule")
        assert rule.zeros_slots([weights], "a") == rule.zeros_slots([weights], "a")
