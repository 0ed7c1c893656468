"""Kaggle's form of CIFAR-10: train/ID.png, and trainLabels.csv with the columns id and label.

The images in test/ have no labels, so a part of the training images is held out for evaluation: a
fifth, since CIFAR-10 has 10,000 of these beside 50,000 for training. It does not depend on --seed.
"""

import csv
import io
from collections.abc import Iterable, Iterator
from typing import Optional

from cifar10 import schema
from data_prep.errors import SourceError
from data_prep.sources import image_tree
from data_prep.sources.dataset import Dataset, Images, split_training
from data_prep.sources.member import Member

KIND = "kaggle"
LABELS = "trainLabels.csv"
_TRAINING_PER_EVAL = 5


def is_unlabelled(parts: tuple[str, ...]) -> bool:
    """Tells whether the components of a name are those of a file in Kaggle's test/."""
    return parts[-2:-1] == ("test",)


def load(members: Iterable[Member], table: str, content: bytes, resize: Optional[str]) -> Dataset:
    """Decodes the images in train/, and holds some of them out for evaluation.

    Args:
      members: the files of the source.
      table: the name of trainLabels.csv among them.
      content: its content.
      resize: how images of other sizes are brought to 32x32; None: they are refused.

    Raises:
      SourceError: the table has another form, an image no label or a label no image, or as for
        `image_tree.load`.
    """
    everything = image_tree.decode(_placed(members, table, _labels(table, content)), resize)
    images = everything[schema.TRAIN]
    size = max(0, min(len(images) // _TRAINING_PER_EVAL, len(images) - schema.NUM_CLASSES))
    train, held_out = (
        Images(images.pixels[chosen], images.labels[chosen])
        for chosen in split_training(images.labels, size, seed=0)
    )
    note = (
        f"Kaggle's test images have no labels: {size:,} of its {len(images):,} training images are "
        "held out for eval."
    )
    return Dataset(KIND, schema.CLASS_NAMES, train, held_out, note=note)


def _labels(table: str, content: bytes) -> dict[str, int]:
    """Returns the label of each image's ID."""
    rows = csv.DictReader(io.StringIO(content.decode("utf-8-sig", "replace"), newline=""))
    labels: dict[str, int] = {}
    try:
        for row in rows:
            name, label = row.get("id"), row.get("label")
            where = f"{table}:{rows.line_num}"
            if not name or label is None or label not in schema.CLASS_NAMES:
                raise SourceError(
                    f"{where}: must be the number of an image and one of "
                    f"{', '.join(schema.CLASS_NAMES)}, below the line id,label"
                )
            if name in labels:
                raise SourceError(f"{where}: image {name[:50]} has a label already")
            labels[name] = schema.CLASS_NAMES.index(label)
    except csv.Error as error:
        raise SourceError(f"{table}: {error}") from error
    return labels


def _placed(
    members: Iterable[Member], table: str, labels: dict[str, int]
) -> Iterator[image_tree.Placed]:
    folder = (*table.split("/")[:-1], "train")
    for member in members:
        if member.parts[:-1] == folder and image_tree.is_image(member.parts):
            label = labels.pop(member.parts[-1].rpartition(".")[0], None)
            if label is None:
                raise SourceError(f"{member.name}: {table} has no label for it, or two files do")
            yield member, schema.TRAIN, label
    if labels:
        missing = "/".join((*folder, f"{next(iter(labels))}.png"))
        raise SourceError(f"{table}: {missing} is missing")
