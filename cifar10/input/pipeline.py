"""TFRecords -> memory -> shuffle -> shard -> batch -> augment -> prefetch.

A split is kept in memory as one uint8 tensor. The image at a position of the endless sequence is a
pure function of (seed, position): the position determines the epoch, and thereby the permutation,
and also how the image is distorted. So the same seed gives the same sequence of images, every epoch
contains every image once, and a run that continues from a checkpoint continues with exactly the
next image, whatever its batch size.

Replicas take turns in this one sequence of positions. Their shards of an epoch are disjoint, and
together they see the same distorted images as one process with a batch as large as all of theirs.
"""

import functools
from typing import Any

import numpy as np
import tensorflow.compat.v1 as tf

from cifar10 import schema
from cifar10.config.train_config import TrainConfig
from cifar10.input import augment
from cifar10.input.augment import words
from cifar10.input.records import RecordSet

# These mark errors of the data in TensorFlow's messages.
BAD_RECORD = "bad record"
REPLACED = "replaced records"
_READ_BATCH = 1024  # records parsed at once
NO_GPU = tf.ConfigProto(device_count={"GPU": 0})
_PREFETCH = 2  # batches that are prepared in advance
# Rounds of the cipher that permutes an epoch. With TensorFlow's default, 4, neighbours stay
# correlated.
_SHUFFLE_ROUNDS = 8
# The first number of the random words for distortion; those for permutations are smaller.
_DISTORTION = 2**63

# Functions that tf.data traces are plain graph code, which AutoGraph need not convert.
_graph_code = tf.autograph.experimental.do_not_convert


def load_split(records: RecordSet, split: str) -> tf.data.Dataset:
    """Reads a split into memory.

    Returns:
      A data set of one element: images uint8 [N, 32, 32, 3] and labels int64 [N].

    Raises:
      DataError: the split has no records.
    """
    # One tensor each for images and labels, so that a batch is one gather. The batch is full only
    # with one record more, so it is read to the end, where the data set is checked.
    return _read(records, split).rebatch(records.counts.get(split, 0) + 1)


def _read(records: RecordSet, split: str) -> tf.data.Dataset:
    """Reads a split's images, uint8 [n, 32, 32, 3], and labels, int64 [n], in batches."""
    parse = functools.partial(_parse, num_classes=len(records.class_names))
    return _serialized(records, split).batch(_READ_BATCH).map(_graph_code(parse))


def _serialized(records: RecordSet, split: str) -> tf.data.Dataset:
    """Reads a split's serialized examples, string scalars, and checks their CRCs.

    At the end, an error is raised if these are not the records that `records` describes.
    """
    records.require(split)
    files = list(records.files(split))
    data = tf.data.TFRecordDataset(files, "GZIP" if files[0].endswith(".gz") else None)
    data = data.apply(tf.data.experimental.assert_cardinality(records.counts[split]))
    if records.manifest_content is not None:
        path = tf.io.gfile.join(records.data_dir, schema.MANIFEST_NAME)
        return data.concatenate(_unchanged(path, records.manifest_content))
    return data


def _unchanged(path: str, content: bytes) -> tf.data.Dataset:
    """Makes a data set of no strings, whose end is an error if a file has another content by then.

    A conversion removes the manifest before it replaces the first file of records. So if the
    manifest is the same afterwards, the records that were read are those that it describes.
    """

    @_graph_code
    def keep(name: Any) -> Any:
        message = f"{REPLACED}: the manifest is another one"
        same = tf.debugging.assert_equal(tf.io.read_file(name), content, message=message)
        with tf.control_dependencies([same]):
            return tf.identity(False)

    # The name is an element, not a constant, or TensorFlow would read the file in advance.
    return tf.data.Dataset.from_tensors(path).filter(keep)


def _parse(serialized: Any, num_classes: int) -> tuple[Any, Any]:
    """Parses and checks serialized examples, string [n], with labels below `num_classes`.

    Returns:
      Images uint8 [n, 32, 32, 3], and labels int64 [n].
    """
    types = {schema.IMAGE_KEY: tf.string, schema.LABEL_KEY: tf.int64}
    wanted = {name: tf.io.FixedLenFeature([], kind) for name, kind in types.items()}
    features = tf.io.parse_example(serialized, wanted)
    encoded, labels = features[schema.IMAGE_KEY], features[schema.LABEL_KEY]
    checks = [
        tf.debugging.assert_equal(
            tf.strings.length(encoded),
            schema.IMAGE_BYTES,
            message=f"{BAD_RECORD}: an image must have {schema.IMAGE_BYTES:,} bytes",
        ),
        tf.debugging.assert_less(
            tf.cast(labels, tf.uint64),  # A negative label becomes a large one.
            tf.constant(num_classes, tf.uint64),
            message=f"{BAD_RECORD}: a label must be in [0, {num_classes})",
        ),
    ]
    with tf.control_dependencies(checks):
        images = tf.io.decode_raw(encoded, tf.uint8)
    images = tf.reshape(images, [-1, schema.CHANNELS, schema.HEIGHT, schema.WIDTH])
    return tf.transpose(images, [0, 2, 3, 1]), labels


def training_batches(
    records: RecordSet,
    config: TrainConfig,
    batch_size: int,
    start: Any = 0,
    num_replicas: int = 1,
    replica: int = 0,
) -> tf.data.Dataset:
    """Makes endless batches of the training split.

    Args:
      records: the records of the data set.
      config: the settings; they decide the seed and the distortion.
      batch_size: the number of images per batch.
      start: the number of images that the whole job has already seen, an int or an int64 scalar
        tensor.
      num_replicas: the number of processes that share the sequence.
      replica: the index of this process among them; it takes every num_replicas-th batch.

    Returns:
      A data set of (images uint8 [batch, 32, 32, 3], labels int64 [batch]).
    """
    whole = load_split(records, schema.TRAIN)
    count = records.counts[schema.TRAIN]
    first, stride = start + batch_size * replica, batch_size * num_replicas

    @_graph_code
    def batches(images: Any, labels: Any) -> tf.data.Dataset:
        images.set_shape([count, schema.HEIGHT, schema.WIDTH, schema.CHANNELS])
        pixels = augment.pixel_table(images) if config.use_distortion_for_training else None

        @_graph_code
        def batch(drawn: Any) -> tuple[Any, Any]:
            chosen = drawn[:, 0]
            if pixels is None:  # To copy whole images is much faster than to gather pixels.
                return tf.gather(images, chosen), tf.gather(labels, chosen)
            pictures = augment.render(pixels, drawn, config.crop_fill, config.cutout)
            return pictures, tf.gather(labels, chosen)

        return draws(count, config, batch_size, first, stride).map(batch)

    return _finish(whole.flat_map(batches))


def draws(
    count: int, config: TrainConfig, batch_size: int, first: Any, stride: int
) -> tf.data.Dataset:
    """Draws the images of each batch from the split's `count`, and the distortion of each image.

    Args:
      count: the number of images in the split.
      config: the settings; they decide the seed and the distortion.
      batch_size: the number of images per batch.
      first: the position in the sequence at which the first batch starts, an int or an int64
        scalar tensor.
      stride: how many positions further on the next batch starts.

    Returns:
      An endless data set of int64 [batch, 6], see `augment.draw`.
    """
    # Each seed starts elsewhere in the sequence of words, so that its crops do not repeat
    # those of another seed.
    origin = words(tf.constant(_DISTORTION + config.seed, tf.uint64))

    @_graph_code
    def draw(start: Any) -> Any:
        positions = start + tf.range(batch_size, dtype=tf.int64)
        chosen, flip = shuffled_indices(positions, count, config.seed), None
        random = words(origin + tf.cast(positions, tf.uint64))
        if config.flip == "alternating":
            # Each image is flipped in every other epoch, half of the images in the first one: two
            # successive epochs contain each image both ways, which random flips leave to chance
            # (Jordan 2024, arXiv:2404.00498, section 3.5).
            first = tf.cast(_cipher_keys(config.seed, chosen)[:, 0], tf.int64)
            flip = (first + positions // count) % 2
        return augment.draw(chosen, random, config.crop_padding, flip)

    return tf.data.Dataset.range(first, 2**62, stride).map(draw)


def shuffled_indices(positions: Any, count: int, seed: int) -> Any:
    """Returns the images at positions of the endless shuffled sequence.

    Each epoch, that is each sequence of `count` positions, has its own permutation.

    Args:
      positions: the positions, int64 [N].
      count: the number of images in the split.
      seed: the seed of the permutations.

    Returns:
      Indices of images, int64 [N], in [0, count).
    """
    epochs = positions // count
    # A cipher computes each index of the permutation without a buffer: it permutes at least 2^16
    # numbers, and is applied again until its result is below `count`.
    # tf.random.experimental.index_shuffle uses this op; here each index has its own seed.
    return tf.raw_ops.RandomIndexShuffle(
        index=positions % count,
        seed=_cipher_keys(seed, epochs),
        max_index=tf.constant(count - 1, tf.int64),
        rounds=_SHUFFLE_ROUNDS,
    )


def _cipher_keys(seed: int, numbers: Any) -> Any:
    """Hashes the seed and each number, int [N], into the keys of the cipher, int32 [N, 3].

    For fewer than 65,536 images, the cipher uses only the low 8 bits of each key. So if the keys
    were the plain numbers, every 256th epoch, and the seeds 1 and 257, would be the same.
    """
    word = words(tf.constant(seed << 32, tf.uint64) + tf.cast(numbers, tf.uint64))
    keys = [tf.bitwise.right_shift(word, tf.constant(bits, tf.uint64)) for bits in (0, 21, 42)]
    low_bits = tf.constant(2**21 - 1, tf.uint64)
    return tf.cast(tf.bitwise.bitwise_and(tf.stack(keys, axis=1), low_bits), tf.int32)


def evaluation_batches(records: RecordSet, split: str, batch_size: int) -> tf.data.Dataset:
    """Batches every image of a split once, in the records' order; the last one may be smaller.

    Returns:
      A data set of (images uint8 [n, 32, 32, 3], labels int64 [n]).
    """
    return _finish(_read(records, split).rebatch(batch_size))


def check_evaluation(records: RecordSet) -> None:
    """Reads the splits that training evaluates, so that damage ends it before its first step.

    15,000 images take 0.12 s of one core (AMD Zen 3, median of 3); parsing them, too, takes 0.55 s.

    Raises:
      tf.errors.OpError: as evaluation would; `tf_errors.clear_errors` translates it.
    """
    for split in sorted({schema.VALIDATION, schema.EVAL} & records.counts.keys()):
        with tf.Graph().as_default(), tf.Session(config=NO_GPU) as session:
            rest = _serialized(records, split).skip(records.counts[split])
            session.run(rest.reduce(0, _graph_code(lambda count, _: count)))


def _finish(data: tf.data.Dataset) -> tf.data.Dataset:
    options = tf.data.Options()
    # The towers use the cores; the input needs only a small part of one core.
    options.threading.private_threadpool_size = 1
    options.threading.max_intra_op_parallelism = 1
    options.deterministic = True
    # There is nothing to tune, and the tuner's thread can delay the end of a session by seconds.
    options.autotune.enabled = False
    return data.prefetch(_PREFETCH).with_options(options)


def sample_images(records: RecordSet, seed: int, count: int) -> Any:
    """Samples training images, normalized by the mean and standard deviation of each channel.

    Args:
      records: the records of the data set, of which the training split is sampled.
      seed: the seed; the same seed gives the same images.
      count: the number of images; if there are fewer, all N images are returned.

    Returns:
      float32 [min(count, N), 32, 32, 3].
    """
    chosen = np.random.default_rng(seed).permutation(records.counts[schema.TRAIN])[:count]
    with tf.Graph().as_default(), tf.Session(config=NO_GPU) as session:
        whole = tf.data.make_one_shot_iterator(load_split(records, schema.TRAIN))
        images = session.run(tf.gather(whole.get_next()[0], np.sort(chosen)))
    mean, std = np.array(records.channels, np.float32)
    return (images.astype(np.float32) - mean) / std
