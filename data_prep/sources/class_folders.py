"""Folders of image files, one for each class, that are not divided into splits: CLASS/*."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Optional

from cifar10 import schema
from data_prep.errors import SourceError
from data_prep.sources import members
from data_prep.sources.dataset import Dataset, Kind
from data_prep.sources.image_tree import Found, Placed, decode, divide, is_image

_EVAL_FRACTION = 0.2


class _ClassFolders(Kind):
    name = "class-folders"
    looks = "CLASS/* with image files"
    takes = ("eval_fraction", "seed")

    def claims(self, parts: tuple[str, ...]) -> bool:
        return is_image(parts) and len(parts) > 1

    def load(
        self,
        path: Path,
        resize: Optional[str],
        eval_fraction: Optional[float] = None,
        seed: int = 0,
    ) -> Dataset:
        found = Found()
        images = found.in_order(decode(_placed(path, found), resize))[schema.TRAIN]
        fraction = _EVAL_FRACTION if eval_fraction is None else eval_fraction
        train, test = divide(images, found, fraction, seed)
        return Dataset(self.name, found.names, train, test, note=found.note(path, "class"))


CLASS_FOLDERS = _ClassFolders()


def _placed(path: Path, found: Found) -> Iterator[Placed]:
    """Yields the image files, as of the train split, and adds to `found` what else there is.

    Raises:
      SourceError: there are folders between a class folder and an image.
    """
    folders = {member.parts[:-1] for member in members.walk(path) if is_image(member.parts)}
    shared = tuple(os.path.commonprefix([*folders]))
    root = shared[:-1] if len(folders) == 1 else shared
    found.folders[schema.TRAIN] = root
    for member in members.walk(path):
        depth = len(member.parts) - len(root)
        if depth == 2 and is_image(member.parts):
            yield member, schema.TRAIN, found.label(member, schema.TRAIN)
        elif depth == 2:
            found.others.append(member.name)
        elif depth == 1 and is_image(member.parts):
            found.outside += 1
        elif is_image(member.parts):
            raise SourceError(
                f"{member.name}: images must be CLASS/FILE, or SPLIT/CLASS/FILE where SPLIT is "
                "train, validation or test, without other folders between; move it there, or out "
                "of the source"
            )
