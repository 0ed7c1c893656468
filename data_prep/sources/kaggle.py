"""Kaggle's form of CIFAR-10: train/ID.png, and trainLabels.csv with the columns id and label.

The images in test/ have no labels, so a part of the training images is held out for evaluation: a
fifth, since CIFAR-10 has 10,000 of these beside 50,000 for training. It does not depend on --seed.
"""

import csv
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Optional

from cifar10 import schema
from data_prep.errors import SourceError
from data_prep.sources import image_tree, members
from data_prep.sources.dataset import Dataset, Kind, split_training

LABELS = "trainLabels.csv"
_TRAINING_PER_EVAL = 5


class _Kaggle(Kind):
    name = "kaggle"
    looks = f"Kaggle's train/* with {LABELS}"

    def claims(self, parts: tuple[str, ...]) -> bool:
        # A folder train/train holds the images of a class of trains.
        is_class = len(parts) > 2 and parts[-3] in schema.SPLIT_WORDS
        is_beside = len(parts) > 1 and parts[-2] in ("train", "test")
        return is_beside and not is_class and image_tree.is_image(parts)

    def decides(self, parts: tuple[str, ...]) -> bool:
        return parts[-1] == LABELS or (self.claims(parts) and parts[-2] == "train")

    def load(self, path: Path, resize: Optional[str]) -> Dataset:
        for member in members.walk(path):
            if member.parts[-1] == LABELS:
                placed = _placed(path, member.name, _labels(member))
                break
        else:
            raise SourceError(
                f"{path}: images must be train/CLASS/FILE, or those in train/ need {LABELS} "
                "beside it, as Kaggle's have"
            )
        images = image_tree.decode(placed, resize)[schema.TRAIN]
        size = max(0, min(len(images) // _TRAINING_PER_EVAL, len(images) - schema.NUM_CLASSES))
        train, held_out = map(images.take, split_training(images.labels, size, seed=0))
        note = (
            f"Kaggle's test images have no labels: {size:,} of its {len(images):,} training images "
            "are held out for eval."
        )
        return Dataset(self.name, schema.CLASS_NAMES, train, held_out, note=note)


KAGGLE = _Kaggle()


def _labels(table: members.Member) -> dict[str, int]:
    """Returns the label of each image's ID."""
    text = table.read().decode("utf-8-sig", "replace")
    rows = csv.DictReader(io.StringIO(text, newline=""))
    labels: dict[str, int] = {}
    try:
        for row in rows:
            name, label = row.get("id"), row.get("label")
            where = f"{table.name}:{rows.line_num}"
            if not name or label is None or label not in schema.CLASS_NAMES:
                got = [text for text in row.values() if isinstance(text, str)]
                raise SourceError(
                    f"{where}: must be the number of an image and one of "
                    f"{', '.join(schema.CLASS_NAMES)}, below the line id,label, got "
                    f"{','.join(got)[:50]!r} below {','.join(rows.fieldnames or [])[:50]}"
                )
            if name in labels:
                raise SourceError(f"{where}: image {name[:50]} has a label already")
            labels[name] = schema.CLASS_NAMES.index(label)
    except csv.Error as error:
        raise SourceError(f"{table.name}: {error}") from error
    return labels


def _placed(path: Path, table: str, labels: dict[str, int]) -> Iterator[image_tree.Placed]:
    folder = (*table.split("/")[:-1], "train")
    for member in members.walk(path):
        if member.parts[:-1] == folder and image_tree.is_image(member.parts):
            label = labels.pop(member.parts[-1].rpartition(".")[0], None)
            if label is None:
                raise SourceError(f"{member.name}: {table} has no label for it, or two files do")
            yield member, schema.TRAIN, label
    if labels:
        raise SourceError(f"{table}: {'/'.join(folder)}/{next(iter(labels))}.png is missing")
