"""The CIFAR-10 records: splits, counts, classes, keys and image shape. Standard library only.

`data_prep`, which writes the records, and `cifar10`, which reads them, both import this module. The
keys and the layout are those of the tensorflow/models `cifar10_estimator` tutorial, so that each
project can read the files of the other.
"""

import re
from collections.abc import Iterable
from typing import Optional

HEIGHT, WIDTH, CHANNELS = 32, 32, 3
IMAGE_BYTES = HEIGHT * WIDTH * CHANNELS  # 3,072 uint8 values in the order [channel, row, column]

CLASS_NAMES = (
    *("airplane", "automobile", "bird", "cat", "deer"),
    *("dog", "frog", "horse", "ship", "truck"),
)
NUM_CLASSES = len(CLASS_NAMES)

# Features of a tf.train.Example: an image of 3,072 raw bytes, and a label, an int64, the
# number of its class from 0.
IMAGE_KEY = "image"
LABEL_KEY = "label"

TRAIN, VALIDATION, EVAL = "train", "validation", "eval"
SPLITS = (TRAIN, VALIDATION, EVAL)

# The published set has 50,000 training images, of which 5,000 are held out, and 10,000 test images.
NUM_TRAINING_IMAGES = 50_000
NUM_VALIDATION_IMAGES = 5_000

# Names of image files, and how an image of another size is brought to 32x32: its middle square, the
# whole image with black bars, or the whole image whatever its proportions.
IMAGE_EXTENSIONS = (".png", ".jpg", ".jpeg", ".webp", ".gif", ".bmp")
CROP, PAD, STRETCH = "crop", "pad", "stretch"
RESIZES = (CROP, PAD, STRETCH)

DEFAULT_DATA_DIR = "data"
MANIFEST_NAME = "manifest.json"
# This file exists while `data_prep` replaces the records of a folder, and remains if it is killed
# meanwhile. A folder with this file must not be read.
INCOMPLETE_NAME = "INCOMPLETE"
FORMAT_VERSION = 1

# The words that other programs have for the splits, in names of files and folders.
SPLIT_WORDS = {
    "train": TRAIN,
    "validation": VALIDATION,
    "valid": VALIDATION,
    "val": VALIDATION,
    "eval": EVAL,
    "test": EVAL,
}

_DIGITS = 5  # of numbers in the names of shards
MAX_SHARDS = 10**_DIGITS - 1
_ENDING = r"(\.tfrecords?)?"
_SHARD = rf"(-(?P<index>\d{{{_DIGITS}}})-of-(?P<count>\d{{{_DIGITS}}}))?"
_NAME = re.compile(rf"(?P<split>{'|'.join(SPLIT_WORDS)}){_ENDING}{_SHARD}{_ENDING}(\.gz)?")
RECORD_NAMES = f"SPLIT.tfrecord or SPLIT-00000-of-00002, SPLIT being {', '.join(SPLIT_WORDS)}"


def file_name(split: str, index: int = 0, count: int = 1) -> str:
    """Returns the name of a shard: `train.tfrecords` or `train-00000-of-00008.tfrecords`.

    Args:
      split: one of SPLITS.
      index: number of the shard, from 0.
      count: number of shards of the split, at most MAX_SHARDS.
    """
    if count == 1:
        return f"{split}.tfrecords"
    return f"{split}-{index:0{_DIGITS}}-of-{count:0{_DIGITS}}.tfrecords"


def parse_record_name(name: str) -> Optional[tuple[str, int, int]]:
    """Returns (split, index, count) of a file of records by any program; None for other names."""
    match = _NAME.fullmatch(name)
    if match is None or match["split"] == name.removesuffix(".gz"):
        return None
    index, count = int(match["index"] or 0), int(match["count"] or 1)
    return (SPLIT_WORDS[match["split"]], index, count) if index < count else None


def parse_file_name(name: str) -> Optional[tuple[str, int, int]]:
    """Returns (split, index, count) of a name that `file_name` gives; None for any other name."""
    parsed = parse_record_name(name)
    return parsed if parsed and file_name(*parsed) == name else None


def record_sets(names: Iterable[str]) -> dict[str, list[str]]:
    """Returns the names of each split's files of records, by any program, in order.

    Raises:
      ValueError: a file is missing, or a split has two sets of files; one line without the folder.
    """
    found: dict[str, list[str]] = {}
    for name in sorted(names):
        parsed = parse_record_name(name)
        if parsed:
            found.setdefault(parsed[0], []).append(name)
    for split, files in found.items():
        _, index, count = parse_record_name(files[0]) or (split, 0, 1)
        number = f"-{index:0{_DIGITS}}-"
        whole = [files[0].replace(number, f"-{i:0{_DIGITS}}-") for i in range(count)]
        for name in sorted({*whole} ^ {*files}):
            if name in whole:
                raise ValueError(f"{name} is missing; run the data_prep command again")
            raise ValueError(f"{name} and {files[0]} are of two sets of {split} records; keep one")
    return found
