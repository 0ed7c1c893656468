"""Labelled images in memory, and how the training images are split."""

from dataclasses import dataclass
from typing import Optional

import numpy as np
import numpy.typing as npt

from cifar10 import schema
from data_prep.errors import SourceError, UsageError

Pixels = npt.NDArray[np.uint8]
Indices = npt.NDArray[np.int64]

# The published ratio, for training sets of another size than the published one.
_DEFAULT_RATIO = schema.NUM_TRAINING_IMAGES // schema.NUM_VALIDATION_IMAGES


@dataclass(frozen=True)
class Images:
    """`pixels` uint8 [n, 3072] in CHW order, `labels` uint8 [n]."""

    pixels: Pixels
    labels: Pixels

    def __len__(self) -> int:
        return len(self.labels)


@dataclass(frozen=True)
class Dataset:
    """What a source holds; `validation` is None unless the source itself sets it apart."""

    kind: str
    class_names: tuple[str, ...]
    train: Images
    eval: Images
    validation: Optional[Images] = None


def check_classes(dataset: Dataset) -> None:
    """Raises SourceError unless every class has a training and an eval image."""
    for split, images in ((schema.TRAIN, dataset.train), (schema.EVAL, dataset.eval)):
        counts = np.bincount(images.labels, minlength=schema.NUM_CLASSES)
        missing = [name for name, count in zip(dataset.class_names, counts) if count == 0]
        if missing:
            raise SourceError(
                f"the {split} images hold none of class {', '.join(missing)}: "
                f"each of the {schema.NUM_CLASSES} classes needs at least one"
            )


def default_validation_size(num_training: int) -> int:
    """5,000 of the published 50,000; a tenth of any other number of training images."""
    return num_training // _DEFAULT_RATIO


def split_training(
    labels: Pixels, validation_size: Optional[int], seed: int
) -> tuple[Indices, Indices]:
    """Chooses the validation images: stratified, seeded, the rest is for training.

    Args:
      labels: uint8 [n], the training images' classes.
      validation_size: images to hold out; None takes `default_validation_size`.
      seed: decides which ones, and the order of both parts.

    Returns:
      (train, validation): shuffled indices into `labels`. Each class gives its share of
      `validation_size`, give or take one image.

    Raises:
      UsageError: `validation_size` does not leave an image of each class for training.
    """
    size = default_validation_size(len(labels)) if validation_size is None else validation_size
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(labels))
    counts = np.bincount(labels, minlength=schema.NUM_CLASSES)
    quotas = _quotas(counts, size)
    taken = np.zeros(len(labels), dtype=bool)
    for label, quota in enumerate(quotas):
        taken[order[labels[order] == label][:quota]] = True
    return order[~taken[order]], order[taken[order]]


def _quotas(counts: Indices, size: int) -> Indices:
    """Divides `size` over the classes in proportion to what they can spare.

    Every class keeps one image for training. Largest remainders are rounded up first; a share
    below a class's room rounds up to at most that room.
    """
    room = np.maximum(counts - 1, 0)
    total, most = int(counts.sum()), int(room.sum())
    if not 0 <= size <= most:
        raise UsageError(
            f"--validation-size must be 0 to {most} for {total} training images (each class "
            f"keeps one), got {size}; without the flag it is {default_validation_size(total)}"
        )
    shares = room * (size / max(most, 1))
    quotas: Indices = np.floor(shares).astype(np.int64)
    largest_first = np.argsort(quotas - shares, kind="stable")
    quotas[largest_first[: size - int(quotas.sum())]] += 1
    return quotas
