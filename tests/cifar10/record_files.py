"""Writes small record folders with TensorFlow, as the tutorial did."""

import pathlib
from collections.abc import Sequence

import numpy as np
import tensorflow.compat.v1 as tf

from cifar10 import schema


def example(image: bytes, label: int) -> bytes:
    """Returns a serialized tf.train.Example with the tutorial's features."""
    feature = tf.train.Feature
    features = {
        "image": feature(bytes_list=tf.train.BytesList(value=[image])),
        "label": feature(int64_list=tf.train.Int64List(value=[label])),
    }
    return bytes(tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString())


def numbered_image(number: int) -> bytes:
    """Returns CHW bytes: red holds the number's low byte, green its high byte, blue 7."""
    planes = np.zeros((3, 32, 32), np.uint8)
    planes[0], planes[1], planes[2] = number % 256, number // 256, 7
    return planes.tobytes()


def numbers(images: np.ndarray) -> list[int]:
    """Returns the numbers of images [N, 32, 32, 3] made by `numbered_image`."""
    return [int(image[16, 16, 0]) + 256 * int(image[16, 16, 1]) for image in images]


def write_file(path: object, serialized: Sequence[bytes]) -> None:
    with tf.io.TFRecordWriter(str(path)) as writer:
        for example in serialized:
            writer.write(example)


def write_numbered(folder: pathlib.Path, split: str, count: int, first: int = 0) -> None:
    """Writes images number first, first + 1, ... without a manifest.

    The label of an image is its number modulo 10.
    """
    folder.mkdir(parents=True, exist_ok=True)
    rows = [example(numbered_image(number), number % 10) for number in range(first, first + count)]
    write_file(folder / schema.file_name(split, 0, 1), rows)
