"""Cross-entropy against the same figures in numpy."""

import numpy as np
import tensorflow.compat.v1 as tf

from cifar10.step.losses import cross_entropy

LABELS = np.array([0, 3, 9, 3, 1, 5])
LOGITS = np.random.default_rng(0).standard_normal((6, 10)).astype(np.float32)
LOG_PROBABILITIES = LOGITS - np.log(np.exp(LOGITS).sum(1, keepdims=True))


def test_cross_entropy_is_that_of_each_images_label():
    found = cross_entropy(tf.constant(LABELS), tf.constant(LOGITS)).numpy()
    np.testing.assert_allclose(found, -LOG_PROBABILITIES[np.arange(6), LABELS], rtol=1e-5)


def test_label_smoothing_spreads_a_share_of_the_label_over_all_classes():
    target = 0.8 * np.eye(10)[LABELS] + 0.2 / 10
    found = cross_entropy(tf.constant(LABELS), tf.constant(LOGITS), 0.2).numpy()
    np.testing.assert_allclose(found, -(target * LOG_PROBABILITIES).sum(1), rtol=1e-5)


def test_a_class_that_cannot_be_costs_nothing_without_smoothing():
    logits = tf.constant([[0.0, -np.inf, 0.0]])
    found = cross_entropy(tf.constant([2]), logits).numpy()
    np.testing.assert_allclose(found, [np.log(2)], rtol=1e-6)
