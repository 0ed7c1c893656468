"""The sample of training images that a model begins with."""

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from cifar10.input.pipeline import load_split
from cifar10.input.records import open_records
from cifar10.input.sample import sample_images


@pytest.fixture(scope="module")
def records(prepared_data):
    return open_records(str(prepared_data))


def test_a_sample_is_a_function_of_data_and_seed(records):
    one, same, other = (sample_images(records, seed, 20) for seed in (1, 1, 2))
    assert one.shape == (20, 32, 32, 3)
    assert one.dtype == np.float32
    np.testing.assert_array_equal(one, same)
    assert not np.array_equal(one, other)


def test_images_are_standardised_by_the_data_sets_own_figures(records):
    with tf.Graph().as_default(), tf.Session() as session:
        batch = tf.data.make_one_shot_iterator(load_split(records, "train")).get_next()
        images = session.run(batch)[0].astype(np.float64)
    images = (images - images.mean((0, 1, 2))) / images.std((0, 1, 2))
    # Fewer than 5,000 images: all of them are in the sample, in their order.
    np.testing.assert_allclose(sample_images(records, 0, 5000), images, atol=1e-3)
