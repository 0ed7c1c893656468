"""Every epoch sees every image once; the same seed and position give the same batch."""

import itertools

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from cifar10.input import pipeline
from cifar10.input.pipeline import (
    TrainInput,
    alternating_flips,
    evaluation_batches,
    load_split,
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


def take(records, count, **settings):
    """The images uint8 [count * batch, 32, 32, 3] and labels of the first `count` batches."""
    settings = {"batch_size": 16, "seed": 1, "distort": False, **settings}
    batches = itertools.islice(training_batches(records, TrainInput(**settings)), count)
    images, labels = zip(*((images.numpy(), labels.numpy()) for images, labels in batches))
    return np.concatenate(images), np.concatenate(labels)


def take_numbers(records, count, **settings):
    return record_files.numbers(take(records, count, **settings)[0])


def test_a_batch_is_uint8_hwc_with_its_labels(records):
    images, labels = take(records, 1)
    assert (images.dtype, images.shape) == (np.uint8, (16, 32, 32, 3))
    assert (labels.dtype, labels.shape) == (np.int64, (16,))
    assert labels.tolist() == [number % 10 for number in record_files.numbers(images)]


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


def test_an_epoch_is_shuffled_over_the_whole_split(records):
    first = np.array(take_numbers(records, 6))
    # A shuffle of whole records keeps few neighbours and has no drift along the file.
    assert np.sum(np.abs(np.diff(first)) == 1) < 10
    assert abs(first[:48].mean() - 49.5) < 20


def test_the_same_seed_gives_the_same_batches(records):
    settings = {"distort": True, "cutout": 8, "seed": 3}
    images, labels = take(records, 4, **settings)
    again, labels_again = take(records, 4, **settings)
    np.testing.assert_array_equal(images, again)
    np.testing.assert_array_equal(labels, labels_again)


def test_another_seed_gives_another_order(records):
    assert take_numbers(records, 6, seed=1) != take_numbers(records, 6, seed=2)


def test_a_continued_run_gets_the_very_batches_that_were_next(records):
    settings = {"distort": True, "cutout": 8}
    images, labels = take(records, 10, **settings)
    rest, rest_labels = take(records, 3, start=7 * 16, **settings)
    np.testing.assert_array_equal(images[7 * 16 :], rest)
    np.testing.assert_array_equal(labels[7 * 16 :], rest_labels)


@pytest.mark.parametrize("start", [0, 70])
def test_replicas_together_see_exactly_what_one_process_with_the_joint_batch_sees(records, start):
    settings = {"distort": True, "cutout": 8, "start": start}
    joint_images, joint_labels = take(records, 9, batch_size=30, **settings)
    parts = [
        take(records, 9, batch_size=10, num_replicas=3, replica=replica, **settings)
        for replica in range(3)
    ]
    images = np.stack([images.reshape(9, 10, 32, 32, 3) for images, _ in parts], axis=1)
    labels = np.stack([labels.reshape(9, 10) for _, labels in parts], axis=1)
    np.testing.assert_array_equal(images.reshape(270, 32, 32, 3), joint_images)
    np.testing.assert_array_equal(labels.reshape(270), joint_labels)


@pytest.mark.system
@pytest.mark.parametrize("flip", ["random", "alternating"])
def test_a_picture_is_the_same_in_batches_of_any_size_and_on_any_replica(prepared_data, flip):
    records = open_records(str(prepared_data))
    settings = {"distort": True, "cutout": 8, "flip": flip}
    # 90 images an epoch: batches reach over its end.
    expected, _ = take(records, 9, batch_size=16, **settings)
    by_48, _ = take(records, 3, batch_size=48, **settings)
    one, other = (
        take(records, 9, batch_size=8, num_replicas=2, replica=replica, **settings)[0]
        for replica in (0, 1)
    )
    in_turn = np.stack([one.reshape(9, 8, -1), other.reshape(9, 8, -1)], axis=1)
    np.testing.assert_array_equal(by_48, expected)
    np.testing.assert_array_equal(in_turn.reshape(expected.shape), expected)


def test_replicas_distort_the_same_image_in_ways_of_their_own(records):
    settings = {"batch_size": 100, "num_replicas": 2, "distort": True}
    (one, _), (other, _) = (take(records, 1, replica=replica, **settings) for replica in (0, 1))
    order, other_order = (
        np.argsort(record_files.numbers(one)),
        np.argsort(record_files.numbers(other)),
    )
    assert (one[order] != other[other_order]).any((1, 2, 3)).mean() > 0.5


def test_the_start_may_be_a_tensor(records):
    start = tf.constant(7 * 16, tf.int64)
    assert take_numbers(records, 3, start=start) == take_numbers(records, 3, start=112)


@pytest.mark.system
def test_a_start_that_a_checkpoint_holds_is_read_when_the_input_begins(records):
    expected = take_numbers(records, 2, start=64)
    with tf.Graph().as_default(), tf.Session() as session:
        seen = tf.get_variable("seen", initializer=tf.constant(0, tf.int64), use_resource=True)
        settings = TrainInput(16, seed=1, distort=False, start=seen.read_value())
        batches = tf.data.make_initializable_iterator(training_batches(records, settings))
        images, _ = batches.get_next()
        session.run(tf.global_variables_initializer())
        seen.load(64, session)  # as a Saver does
        session.run(batches.initializer)
        seen.load(1_000, session)  # Later changes are those of training itself.
        found = [record_files.numbers(session.run(images)) for _ in range(2)]
    assert found[0] + found[1] == expected


def test_a_batch_may_be_larger_than_the_split(tmp_path):
    record_files.write_numbered(tmp_path, "train", 3)
    seen = take_numbers(open_records(str(tmp_path)), 1, batch_size=8)
    assert sorted(seen[:3]) == sorted(seen[3:6]) == [0, 1, 2]


@pytest.mark.parametrize("count", [1, 2, 3, 97, 1000])
def test_shuffled_indices_are_a_permutation_of_each_epoch(count):
    indices = np.array(shuffled_indices(tf.constant(0, tf.int64), 5 * count, count, seed=7))
    for epoch in indices.reshape(5, count):
        assert sorted(epoch) == list(range(count))


def test_shuffled_indices_are_a_function_of_seed_and_position():
    whole = np.array(shuffled_indices(tf.constant(0, tf.int64), 3000, 1000, seed=7))
    late = np.array(shuffled_indices(tf.constant(1990, tf.int64), 20, 1000, seed=7))
    np.testing.assert_array_equal(whole[1990:2010], late)
    other = np.array(shuffled_indices(tf.constant(0, tf.int64), 3000, 1000, seed=8))
    assert np.mean(whole == other) < 0.01


def test_no_epoch_and_no_seed_repeats_another():
    # The cipher behind the shuffle looks at 8 bits of each word of its key.
    start = tf.constant(0, tf.int64)
    epochs = np.array(shuffled_indices(start, 600 * 20, 20, seed=1)).reshape(600, 20)
    assert len({tuple(epoch) for epoch in epochs.tolist()}) == 600
    orders = {tuple(np.array(shuffled_indices(start, 20, 20, s))) for s in (1, 257, 513, 2**31 - 1)}
    assert len(orders) == 4


@pytest.mark.system
def test_positions_are_shuffled_without_preference():
    # Where image 0 goes in 1,000 epochs of 10: 100 times to each place, give or take 4 sigma.
    indices = np.array(shuffled_indices(tf.constant(0, tf.int64), 10_000, 10, seed=1))
    places = np.bincount(np.argmin(indices.reshape(1000, 10), axis=1), minlength=10)
    assert np.abs(places - 100).max() < 4 * np.sqrt(100 * 0.9)


def test_positions_far_into_a_run_are_in_range():
    # 10,000 epochs of the published training images.
    far = np.array(shuffled_indices(tf.constant(450_000_000, tf.int64), 1000, 45_000, seed=1))
    assert (far >= 0).all()
    assert (far < 45_000).all()
    assert len(set(far)) == 1000


@pytest.mark.system
def test_distortion_changes_pixels_not_labels_or_order(records):
    plain, labels = take(records, 2)
    distorted, same_labels = take(records, 2, distort=True)
    assert labels.tolist() == same_labels.tolist()
    assert (plain != distorted).any()
    # Images of one colour: what the crop does not blacken is the image's own colour.
    assert record_files.numbers(plain) == record_files.numbers(distorted)


def test_without_distortion_images_are_as_recorded(records):
    images, _ = take(records, 7)
    for image, number in zip(images, record_files.numbers(images)):
        assert image.tobytes() == np.full((32, 32, 3), [number % 256, 0, 7], np.uint8).tobytes()


def test_evaluation_sees_every_image_once_in_order(records):
    batches = [
        (record_files.numbers(images.numpy()), labels.numpy().tolist())
        for images, labels in evaluation_batches(records, "eval", 10)
    ]
    assert [len(numbers) for numbers, _ in batches] == [10, 10, 3]
    assert sum((numbers for numbers, _ in batches), []) == list(range(600, 623))
    assert sum((labels for _, labels in batches), []) == [n % 10 for n in range(600, 623)]


def test_a_split_is_held_in_memory_as_uint8(records):
    ((images, labels),) = load_split(records, "train")
    assert (images.dtype, images.shape) == (tf.uint8, (100, 32, 32, 3))
    assert (labels.dtype, labels.shape) == (tf.int64, (100,))


def test_the_files_are_read_once(tmp_path):
    record_files.write_numbered(tmp_path, "train", 20)
    batches = iter(training_batches(open_records(str(tmp_path)), TrainInput(5, seed=1)))
    next(batches)
    (tmp_path / "train.tfrecords").unlink()
    for _ in range(12):  # three epochs
        next(batches)


def test_batches_are_prepared_ahead_and_made_whole(records):
    operations = {}
    for batch_size in (2, 50):
        with tf.Graph().as_default() as graph:
            settings = TrainInput(batch_size, seed=1, cutout=8)
            training_batches(records, settings)
            definition = graph.as_graph_def()
        assert "PrefetchDataset" in [node.op for node in definition.node]
        bodies = [node.op for body in definition.library.function for node in body.node_def]
        assert not {"While", "MapDefun", "PyFunc", "EagerPyFunc"} & set(bodies)
        operations[batch_size] = len(bodies)
    # As many ops for 50 images as for 2: none is made for an image.
    assert operations[2] == operations[50]


def test_without_distortion_images_are_copied_whole(records):
    bodies = {}
    for distort in (False, True):
        with tf.Graph().as_default() as graph:
            training_batches(records, TrainInput(16, seed=1, distort=distort))
            library = graph.as_graph_def().library
        bodies[distort] = [node.op for body in library.function for node in body.node_def]
    # Pixels that a shift uncovers are selected one by one.
    assert "SelectV2" in bodies[True]
    assert "SelectV2" not in bodies[False]


# How many values a picture's draws have: shift down, shift right, flip, row and column of cutout.
NUM_VALUES = (9, 9, 2, 32, 32)


@pytest.fixture(scope="module")
def draws(records):
    """By seed, what is drawn at each of 50,000 positions, numbers from 0 up, int [50,000, 5]."""
    found = {}
    for seed in (0, 1, 2, 257, 2**31 - 1):
        batches = pipeline.draws(records.counts["train"], TrainInput(5_000, seed, cutout=8))
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
    for one, other in itertools.combinations(range(5), 2):
        sizes = NUM_VALUES[one], NUM_VALUES[other]
        counts = joint_counts(draws[1][:, one], draws[1][:, other], sizes)
        assert is_uniform(counts), (one, other)


# Neighbours, neighbours but one, and an image in two epochs of 100 at the same place.
@pytest.mark.parametrize("distance", [1, 2, 100])
def test_what_is_drawn_at_one_position_says_nothing_of_another(draws, distance):
    before, after = draws[1][:-distance], draws[1][distance:]
    for one, other in itertools.product(range(5), repeat=2):
        sizes = NUM_VALUES[one], NUM_VALUES[other]
        assert is_uniform(joint_counts(before[:, one], after[:, other], sizes)), (one, other)


@pytest.mark.parametrize("seed", [0, 2, 257, 2**31 - 1])
def test_another_seed_draws_something_else_at_the_same_positions(draws, seed):
    for shift in (-1, 0, 1):
        one, other = draws[1][1:-1], draws[seed][1 + shift : 49_999 + shift]
        for column, size in enumerate(NUM_VALUES):
            assert is_uniform(joint_counts(one[:, column], other[:, column], (size, size)))


def flips(seed):
    """Whether each of 100 images is flipped in each of 4 epochs, int [4, 100]."""
    found = np.zeros((4, 100), int)
    for start in range(0, 400, 25):
        chosen = shuffled_indices(tf.constant(start, tf.int64), 25, 100, seed)
        turned = alternating_flips(tf.constant(start, tf.int64), chosen, 100, seed)
        found[start // 100, chosen.numpy()] = turned.numpy()
    return found


def test_alternating_flips_show_each_image_both_ways_in_any_two_epochs():
    epochs = flips(seed=1)
    assert 30 < epochs[0].sum() < 70
    for before, after in zip(epochs, epochs[1:]):
        np.testing.assert_array_equal(after, 1 - before)


def test_alternating_flips_begin_otherwise_with_another_seed():
    assert (flips(seed=1)[0] != flips(seed=2)[0]).any()


def test_batches_are_flipped_by_turns(prepared_data):
    records = open_records(str(prepared_data))
    settings = {"batch_size": 90, "distort": True, "crop_padding": 0, "flip": "alternating"}
    images, _ = take(records, 2, **settings)
    plain, _ = take(records, 2, **{**settings, "distort": False})
    flipped = (images != plain).any((1, 2, 3))
    np.testing.assert_array_equal(images[flipped], plain[flipped][:, :, ::-1])
    by_image = {}
    for number, (picture, turned) in enumerate(zip(plain, flipped)):
        by_image.setdefault(picture.tobytes(), {})[number // 90] = bool(turned)
    assert len(by_image) == 90
    assert all(turns[0] != turns[1] for turns in by_image.values())
