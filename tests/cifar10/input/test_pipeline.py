"""Every epoch sees every image once; the same seed and position give the same batch."""

import itertools

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from cifar10.config.train_config import TrainConfig
from cifar10.input import pipeline
from cifar10.input.pipeline import (
    evaluation_batches,
    load_split,
    sample_images,
    shuffled_indices,
    training_batches,
)
from cifar10.input.records import open_records
from tests.cifar10 import record_files
from tests.data_prep import made


@pytest.fixture(scope="module")
def records(tutorial_data):
    """100 training, 7 validation and 23 eval images, each with a number of its own."""
    return open_records(str(tutorial_data))


def take(records, count, batch_size=16, distort=False, start=0, place=(1, 0), **settings):
    """The images uint8 [count * batch, 32, 32, 3] and labels of the first `count` batches."""
    config = TrainConfig(seed=1, use_distortion_for_training=distort, **settings)
    batches = itertools.islice(training_batches(records, config, batch_size, start, *place), count)
    images, labels = zip(*((images.numpy(), labels.numpy()) for images, labels in batches))
    return np.concatenate(images), np.concatenate(labels)


def take_numbers(records, count, **settings):
    return record_files.numbers(take(records, count, **settings)[0])


def test_pixels_are_those_of_the_source(prepared_data):
    batches = evaluation_batches(open_records(str(prepared_data)), "eval", 20)
    ((images, labels),) = ((images.numpy(), labels.numpy()) for images, labels in batches)
    # data_prep's source holds CHW rows, of which image k of class k % 10 is the k-th.
    source = made.pixels(5).reshape(20, 3, 32, 32).transpose(0, 2, 3, 1)
    rows = [int(np.flatnonzero((source == image).all((1, 2, 3)))[0]) for image in images]
    assert sorted(rows) == list(range(20))
    assert labels.tolist() == [made.labels()[row] for row in rows]


def test_every_epoch_sees_every_image_exactly_once(records):
    # 3 epochs of 100 images in batches of 16 and a bit: batches reach over the epochs' ends.
    seen = take_numbers(records, 19)
    assert len(seen) == 304
    epochs = [seen[:100], seen[100:200], seen[200:300]]
    for epoch in epochs:
        assert sorted(epoch) == list(range(100))
    assert epochs[0] != epochs[1] != epochs[2] != epochs[0]


def test_a_continued_run_gets_the_very_batches_that_were_next(records):
    settings = {"distort": True, "cutout": 8}
    images, labels = take(records, 10, **settings)
    rest, rest_labels = take(records, 3, start=7 * 16, **settings)
    np.testing.assert_array_equal(images[7 * 16 :], rest)
    np.testing.assert_array_equal(labels[7 * 16 :], rest_labels)


def test_replicas_together_see_exactly_what_one_process_with_the_joint_batch_sees(records):
    settings = {"distort": True, "cutout": 8, "start": tf.constant(70, tf.int64)}
    joint_images, joint_labels = take(records, 4, batch_size=30, **settings)
    parts = [
        take(records, 4, batch_size=10, place=(3, replica), **settings) for replica in range(3)
    ]
    images = np.stack([images.reshape(4, 10, 32, 32, 3) for images, _ in parts], axis=1)
    labels = np.stack([labels.reshape(4, 10) for _, labels in parts], axis=1)
    np.testing.assert_array_equal(images.reshape(120, 32, 32, 3), joint_images)
    np.testing.assert_array_equal(labels.reshape(120), joint_labels)


# The last one is far into a run on the published number of images.
@pytest.mark.parametrize(("count", "epochs_before"), [(1, 0), (3, 0), (1000, 0), (45_000, 10_000)])
def test_shuffled_indices_are_a_permutation_of_each_epoch(count, epochs_before):
    positions = epochs_before * count + tf.range(2 * count, dtype=tf.int64)
    for epoch in np.array(shuffled_indices(positions, count, seed=7)).reshape(2, count):
        assert sorted(epoch) == list(range(count))


def test_no_epoch_and_no_seed_repeats_another():
    # The cipher behind the shuffle looks at 8 bits of each word of its key.
    positions = tf.range(600 * 20, dtype=tf.int64)
    epochs = np.array(shuffled_indices(positions, 20, seed=1)).reshape(600, 20)
    assert len({tuple(epoch) for epoch in epochs.tolist()}) == 600
    seeds = (1, 257, 513, 2**31 - 1)
    orders = {tuple(np.array(shuffled_indices(positions[:20], 20, seed))) for seed in seeds}
    assert len(orders) == 4


def test_evaluation_sees_every_image_once_in_order(records):
    batches = [
        (record_files.numbers(images.numpy()), labels.numpy().tolist())
        for images, labels in evaluation_batches(records, "eval", 10)
    ]
    assert [len(numbers) for numbers, _ in batches] == [10, 10, 3]
    assert sum((numbers for numbers, _ in batches), []) == list(range(600, 623))
    assert sum((labels for _, labels in batches), []) == [n % 10 for n in range(600, 623)]


def test_the_files_are_read_once(tmp_path):
    record_files.write_numbered(tmp_path, "train", 20)
    batches = iter(training_batches(open_records(str(tmp_path)), TrainConfig(), 5))
    next(batches)
    (tmp_path / "train.tfrecords").unlink()
    for _ in range(12):  # three epochs
        next(batches)


def test_batches_are_prepared_ahead_and_made_whole(records):
    operations = {}
    for batch_size in (2, 50):
        with tf.Graph().as_default() as graph:
            training_batches(records, TrainConfig(cutout=8), batch_size)
            definition = graph.as_graph_def()
        assert "PrefetchDataset" in [node.op for node in definition.node]
        bodies = [node.op for body in definition.library.function for node in body.node_def]
        assert not {"While", "MapDefun", "PyFunc", "EagerPyFunc"} & set(bodies)
        operations[batch_size] = len(bodies)
    # As many ops for 50 images as for 2: none is made for an image.
    assert operations[2] == operations[50]


# How many values a picture's draws have: shift down, shift right, flip, row and column of cutout.
NUM_VALUES = (9, 9, 2, 32, 32)


@pytest.fixture(scope="module")
def draws(records):
    """By seed, what is drawn at each of 50,000 positions, numbers from 0 up, int [50,000, 5]."""
    found = {}
    for seed in (0, 1, 257):
        config = TrainConfig(seed=seed, cutout=8)
        batches = pipeline.draws(records.counts["train"], config, 5_000, first=0, stride=5_000)
        drawn = np.concatenate(list(itertools.islice(batches, 10)))
        found[seed] = drawn[:, 1:] + [4, 4, 0, 0, 0]
    return found


def is_uniform(counts):
    """Whether chi-squared is within 5 sigma of what independent uniform draws give."""
    expected, freedom = counts.sum() / counts.size, counts.size - 1
    found = ((counts - expected) ** 2 / expected).sum()
    return abs(found - freedom) < 5 * np.sqrt(2 * freedom)


def joint_counts(one, other, sizes):
    return np.bincount(one * sizes[1] + other, minlength=sizes[0] * sizes[1])


def test_what_is_drawn_for_a_picture_is_uniform_and_independent(draws):
    for column, second in itertools.combinations(range(5), 2):
        sizes = NUM_VALUES[column], NUM_VALUES[second]
        counts = joint_counts(draws[1][:, column], draws[1][:, second], sizes)
        assert is_uniform(counts), (column, second)


# Neighbours, and an image in two epochs of 100 at the same place.
@pytest.mark.parametrize("distance", [1, 100])
def test_what_is_drawn_at_one_position_says_nothing_of_another(draws, distance):
    before, after = draws[1][:-distance], draws[1][distance:]
    for column, second in itertools.product(range(5), repeat=2):
        sizes = NUM_VALUES[column], NUM_VALUES[second]
        assert is_uniform(joint_counts(before[:, column], after[:, second], sizes)), (
            column,
            second,
        )


@pytest.mark.parametrize("seed", [0, 257])
def test_another_seed_draws_something_else_at_the_same_positions(draws, seed):
    for shift in (-1, 0, 1):
        one, other = draws[1][1:-1], draws[seed][1 + shift : 49_999 + shift]
        for column, size in enumerate(NUM_VALUES):
            assert is_uniform(joint_counts(one[:, column], other[:, column], (size, size)))


def test_batches_are_flipped_by_turns(prepared_data):
    records = open_records(str(prepared_data))
    settings = {"batch_size": 90, "distort": True, "crop_padding": 0, "flip": "alternating"}
    images, _ = take(records, 2, **settings)
    plain, _ = take(records, 2, batch_size=90)
    flipped = (images != plain).any((1, 2, 3))
    np.testing.assert_array_equal(images[flipped], plain[flipped][:, :, ::-1])
    by_image = {}
    for number, (picture, turned) in enumerate(zip(plain, flipped)):
        by_image.setdefault(picture.tobytes(), {})[number // 90] = bool(turned)
    assert len(by_image) == 90
    assert all(turns[0] != turns[1] for turns in by_image.values())


def test_a_sample_is_a_function_of_data_and_seed(prepared_data):
    records = open_records(str(prepared_data))
    one, same, other = (sample_images(records, seed, 20) for seed in (1, 1, 2))
    assert one.shape == (20, 32, 32, 3)
    assert one.dtype == np.float32
    np.testing.assert_array_equal(one, same)
    assert not np.array_equal(one, other)


def test_a_sample_is_normalized_by_the_data_sets_own_figures(prepared_data):
    records = open_records(str(prepared_data))
    with tf.Graph().as_default(), tf.Session() as session:
        batch = tf.data.make_one_shot_iterator(load_split(records, "train")).get_next()
        images = session.run(batch)[0].astype(np.float64)
    images = (images - images.mean((0, 1, 2))) / images.std((0, 1, 2))
    # Fewer than 5,000 images: all of them are in the sample, in their order.
    np.testing.assert_allclose(sample_images(records, 0, 5000), images, atol=1e-3)
