"""What towers share: the batch, copies of the weights, means, what they saw; and their loss."""

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from cifar10.ops.layers import Layers, NormStatistics
from cifar10.step import towers
from tests.cifar10.steps import TWO_MACHINES


def test_parts_of_a_batch_keep_their_order_and_differ_by_one_image_at_most():
    with tf.Graph().as_default(), tf.Session() as session:
        batch = tf.placeholder(tf.int64, [None])
        parts = towers.split_batch(batch, 3)
        assert [part.tolist() for part in session.run(parts, {batch: range(7)})] == [
            [0, 1],
            [2, 3],
            [4, 5, 6],
        ]
        assert [part.tolist() for part in session.run(parts, {batch: [9]})] == [[], [], [9]]


def test_a_batch_smaller_than_the_towers_is_filled_with_black_images():
    with tf.Graph().as_default(), tf.Session() as session:
        images = tf.ones([2, 32, 32, 3], tf.uint8)
        filled, enough = session.run([towers.fill_towers(images, 3), towers.fill_towers(images, 2)])
    assert [int(image.max()) for image in filled] == [1, 1, 0]
    assert enough.shape == (2, 32, 32, 3)


def test_weights_are_fetched_once_a_machine_and_copied_once_a_tower():
    with tf.Graph().as_default():
        with tf.device("/job:ps/task:0/cpu:0"):
            weights = tf.zeros([5])
        copies = towers.copies_of_weights([weights], TWO_MACHINES)
        fetches = weights.consumers()
    assert sorted(op.device for op in fetches) == [
        "/job:worker/task:0/device:CPU:0",
        "/job:worker/task:1/device:CPU:0",
    ]
    assert [copy.device for copy in copies] == [
        "/job:worker/task:0/device:GPU:0",
        "/job:worker/task:0/device:GPU:1",
        "/job:worker/task:1/device:GPU:0",
    ]


def tower_that_saw(*layers: np.ndarray) -> Layers:
    """The layers of a tower, of which those of batch norm saw values [count, channels] each."""
    tower = Layers(training=True)
    for values in layers:
        mean, variance = tf.nn.moments(tf.constant(values), [0])
        tower.statistics.append(NormStatistics(mean, variance, tf.constant(len(values))))
    return tower


@pytest.mark.parametrize("num_replicas", [1, 2])
def test_statistics_are_those_of_the_whole_batch(num_replicas):
    # Three towers a replica, four images each; two layers, of five and of two channels.
    random = np.random.default_rng(2)
    wide = random.normal(3, 2, (12 * num_replicas, 5)).astype(np.float32)
    narrow = random.normal(-1, 0.5, (12 * num_replicas, 2)).astype(np.float32)
    with tf.Graph().as_default(), tf.Session() as session:
        parts = [
            tower_that_saw(*layers)
            for layers in zip(np.split(wide, 3 * num_replicas), np.split(narrow, 3 * num_replicas))
        ]
        moments = tf.add_n([towers.tower_moments(part, "/cpu:0") for part in parts]) / len(parts)
        found = session.run(towers.statistics_of(moments, parts[:3], num_replicas))
    expected = [wide.mean(0), narrow.mean(0), wide.var(0, ddof=1), narrow.var(0, ddof=1)]
    np.testing.assert_allclose(found, np.concatenate(expected), rtol=1e-4)


def test_a_variance_never_becomes_negative_by_rounding():
    with tf.Graph().as_default(), tf.Session() as session:
        tower = tower_that_saw(np.full((4, 1), 1.0, np.float32))
        moments = tf.constant([1.0, 0.999999])  # a mean square below the squared mean
        assert session.run(towers.statistics_of(moments, [tower], 1)).tolist() == [1.0, 0.0]
