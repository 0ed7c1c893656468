"""What every kind of source gives: labelled images in memory; and the split of these."""

import abc
from dataclasses import dataclass
from pathlib import Path
from typing import Optional

import numpy as np

from cifar10 import schema
from data_prep.errors import SourceError, UsageError
from data_prep.sources.members import MAX_READ_BYTES
from data_prep.tfrecord.write import MAX_CLASSES, Indices, Pixels

# Training images per validation image in the published set; used for sets of other sizes, too.
_DEFAULT_RATIO = schema.NUM_TRAINING_IMAGES // schema.NUM_VALIDATION_IMAGES


@dataclass(frozen=True)
class Images:
    """Labelled images.

    Attributes:
      pixels: uint8 [n, 3072] in CHW order: the red, the green and the blue plane, each row by row.
      labels: uint8 [n].
    """

    pixels: Pixels
    labels: Pixels

    def __len__(self) -> int:
        return len(self.labels)

    def take(self, indices: Indices) -> "Images":
        """Returns the images of these indices, in their order."""
        return Images(self.pixels[indices], self.labels[indices])


@dataclass(frozen=True)
class Dataset:
    """The images of a source.

    Attributes:
      kind: kind of source, e.g. `image-tree`.
      class_names: names of the classes, in the order of the labels.
      train: training images.
      eval: evaluation images.
      validation: validation images; None if the source does not have any of its own.
      note: lines for people about how the images were divided, and what was left out.
    """

    kind: str
    class_names: tuple[str, ...]
    train: Images
    eval: Images
    validation: Optional[Images] = None
    note: str = ""


class Kind(abc.ABC):
    """A kind of folder or archive; `detect.KINDS` lists them.

    Attributes:
      name: its name in the manifest.
      looks: how people recognise it.
      most_bytes: the most bytes that a file may have.
      takes: what `load` uses, of `resize`, `labels`, `eval_fraction` and `seed`.
    """

    name: str
    looks: str
    takes: tuple[str, ...] = ("resize",)
    most_bytes: int = MAX_READ_BYTES

    @abc.abstractmethod
    def claims(self, parts: tuple[str, ...]) -> bool:
        """Tells whether a source with a file of this path, in components, is of this kind."""

    def decides(self, parts: tuple[str, ...]) -> bool:
        """Tells whether the file of this path decides the images of a source of this kind."""
        return self.claims(parts)

    @abc.abstractmethod
    def load(self, path: Path, resize: Optional[str]) -> Dataset:
        """Reads all images into memory.

        Args:
          path: the folder or archive.
          resize: how image files of other sizes are brought to 32x32; None: they are refused.

        Raises:
          SourceError: the content is damaged or incomplete.
        """


def check(dataset: Dataset) -> None:
    """Checks the form of all images, that every class has some, and that every image has a class.

    Raises:
      SourceError: there is one class or more than `MAX_CLASSES`, an array has another type or
        shape, a class has no training image or no eval image, or a label has no class.
    """
    names = dataset.class_names
    if not 2 <= len(names) <= MAX_CLASSES:
        some = ", ".join(names[:3]) + (", ..." if len(names) > 3 else "")
        raise SourceError(
            f"{dataset.kind}: there must be 2 to {MAX_CLASSES} classes, got {len(names)} ({some})"
        )
    splits = {schema.TRAIN: dataset.train, schema.EVAL: dataset.eval}
    if dataset.validation is not None:
        splits[schema.VALIDATION] = dataset.validation
    for split, images in splits.items():
        pixels, labels = images.pixels, images.labels
        is_form = pixels.dtype == np.uint8 and labels.dtype.kind in "iu" and labels.ndim == 1
        if not is_form or pixels.shape != (len(labels), schema.IMAGE_BYTES):
            raise SourceError(
                f"{dataset.kind}: the {split} images must be uint8 [n, {schema.IMAGE_BYTES}] (red, "
                "green, blue plane), their labels whole numbers [n]; got "
                f"{pixels.dtype} {[*pixels.shape]} and {labels.dtype} {[*labels.shape]}"
            )
        if any((labels < 0) | (labels >= len(names))):
            raise SourceError(f"the {split} images have labels of more classes than there are")
        counts = np.bincount(labels, minlength=len(names))
        missing = [name for name, count in zip(names, counts) if count == 0]
        if missing and split != schema.VALIDATION:
            some = ", ".join(missing)
            raise SourceError(f"the {split} images hold none of class {some}; each class needs one")


def split_training(
    labels: Pixels, validation_size: Optional[int], seed: int
) -> tuple[Indices, Indices]:
    """Splits the training images, in random order, into a training and a validation part.

    Args:
      labels: classes of the training images, uint8 [n].
      validation_size: number of images to hold out; None: a tenth, 5,000 of the published 50,000.
      seed: seed of the choice of images and of the order of both parts.

    Returns:
      (train, validation): indices into `labels`, int64, in random order. Each class gives its
      share of `validation_size`, to within one image.

    Raises:
      UsageError: `validation_size` does not leave one image of each class for training.
    """
    size = len(labels) // _DEFAULT_RATIO if validation_size is None else validation_size
    rng = np.random.default_rng(seed)
    return _divide(labels, _quotas(np.bincount(labels), size), rng)


def hold_out(labels: Pixels, fraction: float, seed: int) -> tuple[Indices, Indices]:
    """Splits images, in random order, into a part for training and one for evaluation.

    Args:
      labels: classes of the images, uint8 [n].
      fraction: the share of each class that is held out. It is at least one image, and one stays
        for training.
      seed: seed of the choice of images and of the order of both parts.

    Returns:
      (kept, held out): indices into `labels`, int64, in random order.
    """
    counts = np.bincount(labels)
    quotas = np.rint(counts * fraction).astype(np.int64)
    quotas = np.minimum(np.maximum(quotas, 1), np.maximum(counts - 1, 0))
    # Not the numbers that choose the validation images of what is kept.
    return _divide(labels, quotas, np.random.default_rng([seed, 2]))


def _divide(labels: Pixels, quotas: Indices, rng: np.random.Generator) -> tuple[Indices, Indices]:
    """Takes the first `quotas[k]` images of each class k of a random order."""
    order = rng.permutation(len(labels))
    taken = np.zeros(len(labels), dtype=bool)
    for label, quota in enumerate(quotas):
        taken[order[labels[order] == label][:quota]] = True
    return order[~taken[order]], order[taken[order]]


def _quotas(counts: Indices, size: int) -> Indices:
    """Divides `size` among the classes, in proportion to the images that each can give.

    A class can give all of its images but one, which stays for training. Shares are rounded so that
    they add up to `size`; the largest fractions are rounded up.
    """
    room = np.maximum(counts - 1, 0)
    total, most = int(counts.sum()), int(room.sum())
    if not 0 <= size <= most:
        raise UsageError(
            f"--validation-size must be 0 to {most} for {total} training images (each class "
            f"keeps one), got {size}; without the flag it is {total // _DEFAULT_RATIO}"
        )
    shares = room * (size / max(most, 1))
    quotas: Indices = np.floor(shares).astype(np.int64)
    largest_first = np.argsort(quotas - shares, kind="stable")
    quotas[largest_first[: size - int(quotas.sum())]] += 1
    return quotas
