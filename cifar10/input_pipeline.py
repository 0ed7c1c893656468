"""TFRecords -> memory -> shuffle -> shard -> batch -> augment -> prefetch.

A split is held in memory as one uint8 tensor, and the batch at a position is a pure function of
(seed, position): the position gives the epoch, the epoch its permutation, and both the random
crops. So the same seed gives the same run, every epoch sees every image once, and a run that
continues from a checkpoint goes on with the very batch that was next.

Replicas take turns in the one sequence of positions. Their shards of an epoch are disjoint, and
together they see what one process with a batch as large as all of theirs would see.
"""

import dataclasses
from typing import Any

import tensorflow.compat.v1 as tf

from cifar10 import augment, schema
from cifar10.records import RecordSet

BAD_RECORD = "bad record"  # marks errors of the data in TensorFlow's messages
_READ_BATCH = 1024  # records parsed at once
_SEEDS_A_BATCH = 16  # at least as many as the augmentation's random draws
_PREFETCH = 2  # batches made while a step runs
# Of the cipher that permutes an epoch. With TensorFlow's default, 4, neighbours stay correlated.
_SHUFFLE_ROUNDS = 8

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
    stride = settings.batch_size * settings.num_replicas
    first = settings.start + settings.batch_size * settings.replica

    @_graph_code
    def batches(images: Any, labels: Any) -> tf.data.Dataset:
        @_graph_code
        def batch(start: Any) -> tuple[Any, Any]:
            chosen = shuffled_indices(start, settings.batch_size, count, settings.seed)
            picked = tf.gather(images, chosen)
            seed = tf.stack([tf.constant(settings.seed, tf.int64), start * _SEEDS_A_BATCH])
            if settings.distort:
                flip = None
                if settings.flip == "alternating":
                    flip = alternating_flips(start, chosen, count, settings.seed)
                picked = augment.crop_and_flip(
                    picked, seed, settings.crop_padding, settings.crop_fill, flip
                )
            if settings.cutout:
                picked = augment.cutout(picked, settings.cutout, seed)
            picked.set_shape([settings.batch_size, schema.HEIGHT, schema.WIDTH, schema.CHANNELS])
            return picked, tf.gather(labels, chosen)

        starts = tf.data.Dataset.range(first, 2**62, stride)
        return starts.map(batch)

    return _finish(whole.flat_map(batches))


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
    positions = start + tf.range(batch_size, dtype=tf.int64)
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
    positions = start + tf.range(tf.shape(chosen, out_type=tf.int64)[0], dtype=tf.int64)
    first = tf.cast(_cipher_keys(seed, chosen)[:, 0], tf.int64)
    return (first + positions // count) % 2


def _cipher_keys(seed: int, numbers: Any) -> Any:
    """Hashes (seed, number) into int32 [N, 3], with SplitMix64 (Steele et al. 2014).

    For less than 65,536 images the cipher looks at the low 8 bits of each word alone, so that with
    plain numbers for words every 256th epoch, and the seeds 1 and 257, would be the same.
    """
    state = tf.constant(seed << 32, tf.uint64) + tf.cast(numbers, tf.uint64)
    state *= tf.constant(0x9E3779B97F4A7C15, tf.uint64)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        state = _xor_shifted(state, shift) * tf.constant(factor, tf.uint64)
    state = _xor_shifted(state, 31)
    words = [tf.bitwise.right_shift(state, tf.constant(bits, tf.uint64)) for bits in (0, 21, 42)]
    low_bits = tf.constant(2**21 - 1, tf.uint64)
    return tf.cast(tf.bitwise.bitwise_and(tf.stack(words, axis=1), low_bits), tf.int32)


def _xor_shifted(state: Any, bits: int) -> Any:
    return tf.bitwise.bitwise_xor(
        state, tf.bitwise.right_shift(state, tf.constant(bits, tf.uint64))
    )


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
