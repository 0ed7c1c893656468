"""Cross-entropy and the confusion matrix, against the same figures in numpy."""

import numpy as np
import tensorflow.compat.v1 as tf

from cifar10.step.losses import confusion_matrix, cross_entropy

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


def test_the_confusion_matrix_counts_all_batches_true_classes_down_predicted_across():
    with tf.Graph().as_default(), tf.Session() as session:
        labels, classes = (tf.placeholder(tf.int64, [None]) for _ in range(2))
        value, update = confusion_matrix(labels, classes)
        # What an Estimator sets to its first value at the start of an evaluation, and no trainer
        # changes or checkpoint holds.
        (total,) = tf.local_variables()
        assert tf.get_collection(tf.GraphKeys.METRIC_VARIABLES) == [total]
        assert tf.global_variables() == []
        assert tf.trainable_variables() == []
        session.run(tf.local_variables_initializer())
        assert session.run(value).tolist() == np.zeros((10, 10)).tolist()
        first = session.run(update, {labels: [3, 3, 9], classes: [5, 5, 0]})
        assert _counts(first) == {(3, 5): 2, (9, 0): 1}
        second = session.run(update, {labels: [0, 3], classes: [0, 5]})
        assert _counts(second) == {(3, 5): 3, (9, 0): 1, (0, 0): 1}
        np.testing.assert_array_equal(session.run(value), second)
        assert second.dtype == np.int64
        assert second.shape == (10, 10)
        assert total.op.name == "confusion_matrix"


def _counts(matrix: np.ndarray) -> dict[tuple[int, int], int]:
    return {
        (int(row), int(column)): int(matrix[row, column]) for row, column in np.argwhere(matrix)
    }
