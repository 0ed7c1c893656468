"""What a CIFAR-10 record is: splits, counts, classes, keys, image shape. Standard library only.

Both sides of the records import this module: `data_prep`, which writes them, and `cifar10`, which
reads them. The keys and layout are those of the tensorflow/models `cifar10_estimator` tutorial, so
that its files work here and ours work there.
"""

import re
from typing import Optional

HEIGHT, WIDTH, CHANNELS = 32, 32, 3
IMAGE_BYTES = HEIGHT * WIDTH * CHANNELS  # 3,072 uint8, in CHW order

CLASS_NAMES = (
    "airplane",
    "automobile",
    "bird",
    "cat",
    "deer",
    "dog",
    "frog",
    "horse",
    "ship",
    "truck",
)
NUM_CLASSES = len(CLASS_NAMES)

# Features of one tf.train.Example: 3,072 raw bytes, and an int64 in [0, 10).
IMAGE_KEY = "image"
LABEL_KEY = "label"

TRAIN, VALIDATION, EVAL = "train", "validation", "eval"
SPLITS = (TRAIN, VALIDATION, EVAL)

# The published set has 50,000 training images, of which 5,000 are held out, and 10,000 test images.
NUM_TRAINING_IMAGES = 50_000
NUM_VALIDATION_IMAGES = 5_000

DEFAULT_DATA_DIR = "data"
MANIFEST_NAME = "manifest.json"
# Present while `data_prep` replaces the records of a folder, and after a kill at that moment:
# whoever finds it must not read the folder.
INCOMPLETE_NAME = "INCOMPLETE"
FORMAT_VERSION = 1

_FILE_NAME = re.compile(
    rf"(?P<split>{'|'.join(SPLITS)})(-(?P<index>\d{{5}})-of-(?P<count>\d{{5}}))?\.tfrecords"
)


def file_name(split: str, index: int = 0, count: int = 1) -> str:
    """Names shard `index` of `count`: `train.tfrecords` or `train-00000-of-00008.tfrecords`."""
    if count == 1:
        return f"{split}.tfrecords"
    return f"{split}-{index:05d}-of-{count:05d}.tfrecords"


def parse_file_name(name: str) -> Optional[tuple[str, int, int]]:
    """Returns (split, index, count) for a name that `file_name` makes, None for any other."""
    match = _FILE_NAME.fullmatch(name)
    if match is None:
        return None
    if match["index"] is None:
        return match["split"], 0, 1
    return match["split"], int(match["index"]), int(match["count"])
