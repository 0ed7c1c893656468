"""TFRecords -> memory -> shuffle -> shard -> batch -> augment -> prefetch.

A split is held in memory as one uint8 tensor, and the picture at a position of the endless sequence
is a pure function of (seed, position): the position gives the epoch, the epoch its permutation, and
the position itself how the image is distorted. So the same seed gives the same run, every epoch
sees every image once, and a run that continues from a checkpoint goes on with the very picture that
was next, whatever the size of its batches.

Replicas take turns in the one sequence of positions. Their shards of an epoch are disjoint, and
together they see what one process with a batch as large as all of theirs would see, crops and all.
"""

import dataclasses
from typing import Any

import tensorflow.compat.v1 as tf

from cifar10 import schema
from cifar10.input import augment
from cifar10.input.random_words import words
from cifar10.input.records import RecordSet

BAD_RECORD = "bad record"  # marks errors of the data in TensorFlow's messages
_READ_BATCH = 1024  # records parsed at once
_PREFETCH = 2  # batches made while a step runs
# Of the cipher that permutes an epoch. With TensorFlow's default, 4, neighbours stay correlated.
_SHUFFLE_ROUNDS = 8
# Numbers of words from here on are for distortion; those of the permutations lie below.
_DISTORTION = 2**63

# The functions that tf.data traces are plain graph code.
_graph_code = tf.autograph.experimental.do_not_convert


@dataclasses.dataclass(frozen=True)
class TrainInput:
    """What the training input needs to know.

    Attributes:
      batch_size: images a batch.
      seed: of the permutations and of the augmentation.
      distort: crop and flip.
      crop_padding: pixels that a crop may shift an image.
      crop_fill: what the shift uncovers, `zeros` or `reflect`.
      flip: `random` or `alternating`.
      cutout: side of the square to cut out, 0 for none.
      start: images that the whole job has seen already, an int or an int64 scalar tensor.
      num_replicas: how many processes share the sequence.
      replica: which of them this is; it takes every num_replicas-th batch.
    """

    batch_size: int
    seed: int
    distort: bool = True
    crop_padding: int = augment.PADDING
    crop_fill: str = "zeros"
    flip: str = "random"
    cutout: int = 0
    start: Any = 0
    num_replicas: int = 1
    replica: int = 0


def load_split(records: RecordSet, split: str) -> tf.data.Dataset:
    """Reads a split into memory.

    Returns:
      A data set of one element: images uint8 [N, 32, 32, 3] and labels int64 [N].
    """
    # One tensor each for images and labels, so that a batch is one gather.
    return _read(records, split).rebatch(records.counts.get(split, 0))


def _read(records: RecordSet, split: str) -> tf.data.Dataset:
    """Images and labels of a split, in batches as they are read."""
    records.require(split)
    data = tf.data.TFRecordDataset(list(records.files[split]))
    return data.batch(_READ_BATCH).map(_parse)


@_graph_code
def _parse(serialized: Any) -> tuple[Any, Any]:
    """Serialized examples [n] -> uint8 [n, 32, 32, 3] and labels int64 [n], checked."""
    features = tf.io.parse_example(
        serialized,
        {
            schema.IMAGE_KEY: tf.io.FixedLenFeature([], tf.string),
            schema.LABEL_KEY: tf.io.FixedLenFeature([], tf.int64),
        },
    )
    encoded, labels = features[schema.IMAGE_KEY], features[schema.LABEL_KEY]
    checks = [
        tf.debugging.assert_equal(
            tf.strings.length(encoded),
            schema.IMAGE_BYTES,
            message=f"{BAD_RECORD}: an image must have {schema.IMAGE_BYTES:,} bytes",
        ),
        tf.debugging.assert_less(
            tf.cast(labels, tf.uint64),  # A negative label becomes a large one.
            tf.constant(schema.NUM_CLASSES, tf.uint64),
            message=f"{BAD_RECORD}: a label must be in [0, {schema.NUM_CLASSES})",
        ),
    ]
    with tf.control_dependencies(checks):
        images = tf.io.decode_raw(encoded, tf.uint8)
    images = tf.reshape(images, [-1, schema.CHANNELS, schema.HEIGHT, schema.WIDTH])
    return tf.transpose(images, [0, 2, 3, 1]), labels


def training_batches(records: RecordSet, settings: TrainInput) -> tf.data.Dataset:
    """Endless batches of the training split.

    Returns:
      A data set of (images uint8 [batch, 32, 32, 3], labels int64 [batch]).
    """
    whole = load_split(records, schema.TRAIN)
    count = records.counts[schema.TRAIN]

    @_graph_code
    def batches(images: Any, labels: Any) -> tf.data.Dataset:
        images.set_shape([count, schema.HEIGHT, schema.WIDTH, schema.CHANNELS])
        pixels = augment.pixel_table(images)

        @_graph_code
        def batch(drawn: Any) -> tuple[Any, Any]:
            pictures = augment.render(pixels, drawn, settings.crop_fill, settings.cutout)
            return pictures, tf.gather(labels, drawn[:, 0])

        return draws(count, settings).map(batch)

    return _finish(whole.flat_map(batches))


def draws(count: int, settings: TrainInput) -> tf.data.Dataset:
    """Which of the split's `count` images are in each batch, and how each of them is distorted.

    Returns:
      An endless data set of int64 [batch, 6], see `augment.draw`.
    """
    stride = settings.batch_size * settings.num_replicas
    first = settings.start + settings.batch_size * settings.replica
    # A place of its own in the sequence of words, so that no seed sees another's crops later on.
    origin = words(tf.constant(_DISTORTION + settings.seed, tf.uint64))

    @_graph_code
    def draw(start: Any) -> Any:
        chosen = shuffled_indices(start, settings.batch_size, count, settings.seed)
        positions = _positions(start, settings.batch_size)
        random = words(origin + tf.cast(positions, tf.uint64))
        padding, flip = settings.crop_padding, None
        if not settings.distort:
            padding, flip = 0, tf.zeros([settings.batch_size], tf.int64)
        elif settings.flip == "alternating":
            flip = alternating_flips(start, chosen, count, settings.seed)
        return augment.draw(chosen, random, padding, flip)

    return tf.data.Dataset.range(first, 2**62, stride).map(draw)


def _positions(start: Any, count: Any) -> Any:
    """int64 [count]: start, start + 1, ..."""
    return start + tf.range(count, dtype=tf.int64)


def shuffled_indices(start: Any, batch_size: int, count: int, seed: int) -> Any:
    """Which images are at positions start, start + 1, ... of the endless shuffled sequence.

    Each epoch, that is each run of `count` positions, is a permutation of its own.

    Args:
      start: int64 scalar.
      batch_size: how many positions.
      count: images in the split.
      seed: of the permutations.

    Returns:
      int64 [batch_size], in [0, count).
    """
    positions = _positions(start, batch_size)
    epochs = positions // count
    # A cipher on [0, count): each image's place in the permutation costs the same, whatever the
    # count, and no buffer. The op behind tf.random.experimental.index_shuffle, one seed an index.
    return tf.raw_ops.RandomIndexShuffle(
        index=positions % count,
        seed=_cipher_keys(seed, epochs),
        max_index=tf.constant(count - 1, tf.int64),
        rounds=_SHUFFLE_ROUNDS,
    )


def alternating_flips(start: Any, chosen: Any, count: int, seed: int) -> Any:
    """Which images to flip: half of them in the first epoch, the others in the next, and so on.

    So two epochs see each image both ways, which flips at random leave to chance (Jordan 2024,
    arXiv:2404.00498, section 3.5).

    Args:
      start: position of the first image, int64 scalar.
      chosen: which image is at each position, int64 [N].
      count: images in the split.
      seed: of the first epoch's half.

    Returns:
      int64 [N], 0 or 1.
    """
    positions = _positions(start, tf.shape(chosen, out_type=tf.int64)[0])
    first = tf.cast(_cipher_keys(seed, chosen)[:, 0], tf.int64)
    return (first + positions // count) % 2


def _cipher_keys(seed: int, numbers: Any) -> Any:
    """Hashes (seed, number) into int32 [N, 3].

    For less than 65,536 images the cipher looks at the low 8 bits of each word alone, so that with
    plain numbers for words every 256th epoch, and the seeds 1 and 257, would be the same.
    """
    word = words(tf.constant(seed << 32, tf.uint64) + tf.cast(numbers, tf.uint64))
    keys = [tf.bitwise.right_shift(word, tf.constant(bits, tf.uint64)) for bits in (0, 21, 42)]
    low_bits = tf.constant(2**21 - 1, tf.uint64)
    return tf.cast(tf.bitwise.bitwise_and(tf.stack(keys, axis=1), low_bits), tf.int32)


def evaluation_batches(records: RecordSet, split: str, batch_size: int) -> tf.data.Dataset:
    """Every image of a split once, in the order of the records; the last batch may be smaller."""
    return _finish(_read(records, split).rebatch(batch_size))


def _finish(data: tf.data.Dataset) -> tf.data.Dataset:
    options = tf.data.Options()
    # The towers own the cores; the input needs a small part of one.
    options.threading.private_threadpool_size = 1
    options.threading.max_intra_op_parallelism = 1
    options.deterministic = True
    # There is nothing to tune, and the tuner's thread can hold up a closing session for seconds.
    options.autotune.enabled = False
    return data.prefetch(_PREFETCH).with_options(options)
