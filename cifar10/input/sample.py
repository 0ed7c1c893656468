"""Samples training images, for the initial values that a model computes from the data."""

from typing import Any

import numpy as np
import tensorflow.compat.v1 as tf

from cifar10.input.pipeline import NO_GPU, load_split
from cifar10.input.records import RecordSet
from cifar10.schema import TRAIN


def sample_images(records: RecordSet, seed: int, count: int) -> Any:
    """Samples training images, standardised by the mean and standard deviation of each channel.

    Args:
      records: the records of the data set, of which the training split is sampled.
      seed: the seed; the same seed gives the same images.
      count: the number of images; if there are fewer, all N images are returned.

    Returns:
      float32 [min(count, N), 32, 32, 3].
    """
    chosen = np.random.default_rng(seed).permutation(records.counts[TRAIN])[:count]
    with tf.Graph().as_default(), tf.Session(config=NO_GPU) as session:
        whole = tf.data.make_one_shot_iterator(load_split(records, TRAIN))
        images = session.run(tf.gather(whole.get_next()[0], np.sort(chosen)))
    mean, deviation = (
        np.asarray(numbers, np.float32)
        for numbers in (records.channel_mean, records.channel_deviation)
    )
    return (images.astype(np.float32) - mean) / deviation
