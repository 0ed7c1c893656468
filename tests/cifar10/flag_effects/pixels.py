"""Settings that change the batch, seen on images whose pixels encode their position.

In the images of `write_records`, pixel (row, column) of image k is (row + 1, column + 1, k + 1). So
each pixel of a batch tells where in the records it comes from; (0, 0, 0) is a fill value.
"""

import collections
import dataclasses
import functools
import pathlib
from typing import Any, NamedTuple

import numpy as np
import tensorflow.compat.v1 as tf

from cifar10.config.train_config import TrainConfig
from cifar10.input.records import open_records
from cifar10.run.job import evaluation_input, make_job, training_input
from cifar10.schema import EVAL, TRAIN, file_name
from tests.cifar10.flag_effects.rows import Row
from tests.cifar10.record_files import example, write_file

TRAIN_IMAGES, EVAL_IMAGES = 100, 250
_CENTRE = 16
_EPOCHS = 4


def write_records(folder: pathlib.Path) -> None:
    """Writes records of 100 training and 250 eval images, without a manifest."""
    rows, columns = np.mgrid[1:33, 1:33]
    for split, count in ((TRAIN, TRAIN_IMAGES), (EVAL, EVAL_IMAGES)):
        planes = [np.stack([rows, columns, np.full((32, 32), k + 1)]) for k in range(count)]
        images = [one.astype(np.uint8).tobytes() for one in planes]
        path = folder / file_name(split, 0, 1)
        write_file(path, [example(image, k % 10) for k, image in enumerate(images)])


class Seen(NamedTuple):
    """What the pixels of N training images tell; arrays of shape [N], in the order of training."""

    image: np.ndarray  # number of the image in the split
    down: np.ndarray  # vertical offset of the crop, in pixels
    right: np.ndarray  # horizontal offset of the crop, in pixels
    flipped: np.ndarray  # whether the image is flipped
    black: np.ndarray  # number of pixels with the fill value
    whole: np.ndarray  # whether the image is unchanged


@functools.cache
def _training_images(config: TrainConfig) -> np.ndarray:
    """Returns four training batches of an epoch each, uint8 [400, 32, 32, 3]."""
    records = open_records(config.data_place)
    job = make_job(config, records)
    with tf.Graph().as_default(), tf.device("/cpu:0"), tf.Session() as session:
        batches = tf.data.make_initializable_iterator(training_input(job))
        features = batches.get_next()
        session.run(tf.global_variables_initializer())
        session.run(batches.initializer)
        return np.concatenate([session.run(features[0]) for _ in range(_EPOCHS)])


def _seen(config: TrainConfig) -> Seen:
    images = _training_images(config).astype(int)
    row, column, number = images[:, _CENTRE, _CENTRE].T - 1
    flipped = images[:, _CENTRE, _CENTRE + 1, 1] < images[:, _CENTRE, _CENTRE, 1]
    original = np.mgrid[1:33, 1:33].transpose(1, 2, 0)
    return Seen(
        image=number,
        down=row - _CENTRE,
        right=column - np.where(flipped, 31 - _CENTRE, _CENTRE),
        flipped=flipped,
        black=(images == 0).all(axis=3).sum(axis=(1, 2)),
        whole=(images[..., :2] == original).all(axis=(1, 2, 3)),
    )


def farthest_crops(config: TrainConfig) -> tuple[int, ...]:
    """Returns the largest crop offsets up, down, left and right, in pixels."""
    seen = _seen(config)
    return tuple(int(n) for n in (*_range(seen.down), *_range(seen.right)))


def _range(numbers: np.ndarray) -> tuple[int, int]:
    return numbers.min(), numbers.max()


def most_black_pixels(config: TrainConfig) -> int:
    """Returns the largest number of black pixels in an image."""
    return int(_seen(config).black.max())


def shows_black(config: TrainConfig) -> bool:
    """Returns whether any image has a black pixel."""
    return most_black_pixels(config) > 0


def flips_in_two_epochs(config: TrainConfig) -> list[int]:
    """Returns the distinct numbers of times that an image is flipped in two epochs."""
    seen = _seen(config)
    flipped = collections.Counter(dict.fromkeys(range(TRAIN_IMAGES), 0))
    flipped.update(seen.image[: 2 * TRAIN_IMAGES][seen.flipped[: 2 * TRAIN_IMAGES]].tolist())
    return sorted(set(flipped.values()))


def leaves_images_as_they_are(config: TrainConfig) -> bool:
    """Returns whether all images are as in the records."""
    return bool(_seen(config).whole.all())


def differs_from_seed_1(config: TrainConfig) -> dict[str, bool]:
    """Returns whether the order and the crops differ from those with seed 1."""
    ours, theirs = _seen(config), _seen(_with_seed_1(config))
    crops = [one.down[np.argsort(one.image[:TRAIN_IMAGES])] for one in (ours, theirs)]
    return {
        "order": bool((ours.image != theirs.image).any()),
        "crops": bool((crops[0] != crops[1]).any()),
    }


def _with_seed_1(config: TrainConfig) -> TrainConfig:
    return dataclasses.replace(config, seed=1)


def training_batch(config: TrainConfig) -> tuple[Any, ...]:
    """Returns the shape and type of training's image batches."""
    with tf.Graph().as_default():
        data = training_input(make_job(config, open_records(config.data_place)))
        first = tf.nest.flatten(tf.data.get_output_shapes(data))[0]
        return (*first.as_list(), tf.nest.flatten(tf.data.get_output_types(data))[0].name)


def evaluation_batches(config: TrainConfig) -> list[int]:
    """Returns the sizes of the batches in which the 250 eval images come."""
    job = make_job(config, open_records(config.data_place))
    with tf.Graph().as_default(), tf.Session() as session:
        labels = tf.data.make_one_shot_iterator(evaluation_input(job, EVAL)).get_next()[1]
        sizes: list[int] = []
        while sum(sizes) < EVAL_IMAGES:
            sizes.append(len(session.run(labels)))
        return sizes


_EPOCH_A_BATCH = "--model=mlp --train-batch-size=100 --num-towers=1"

_DISTORTIONS = [
    Row(
        "use_distortion_for_training",
        leaves_images_as_they_are,
        {None: False, "false": True},
        _EPOCH_A_BATCH,
    ),
    Row(
        "crop_padding",
        farthest_crops,
        {None: (-4, 4, -4, 4), "1": (-1, 1, -1, 1), "0": (0, 0, 0, 0)},
        _EPOCH_A_BATCH,
    ),
    Row("crop_fill", shows_black, {None: True, "reflect": False}, _EPOCH_A_BATCH),
    Row("flip", flips_in_two_epochs, {None: [0, 1, 2], "alternating": [1]}, _EPOCH_A_BATCH),
    # Without crop padding, only cutout makes pixels black: 8 x 8 of them.
    Row("cutout", most_black_pixels, {None: 0, "8": 64}, f"{_EPOCH_A_BATCH} --crop-padding=0"),
    Row(
        "seed",
        differs_from_seed_1,
        {None: {"order": False, "crops": False}, "2": {"order": True, "crops": True}},
        _EPOCH_A_BATCH,
    ),
]

ROWS = [
    *_DISTORTIONS,
    Row(
        "train_batch_size",
        training_batch,
        {None: (128, 32, 32, 3, "uint8"), "16": (16, 32, 32, 3, "uint8")},
        "--model=mlp --num-gpus=0",
    ),
    Row(
        "eval_batch_size",
        evaluation_batches,
        {None: [100, 100, 50], "200": [200, 50]},
        "--model=mlp",
    ),
]
