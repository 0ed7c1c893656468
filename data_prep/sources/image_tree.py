"""A tree of image files: train/CLASS/* and test/CLASS/*, optionally validation/CLASS/*."""

from collections import deque
from collections.abc import Iterable, Iterator
from typing import Optional

import numpy as np

from cifar10 import schema
from data_prep.errors import SourceError
from data_prep.sources import decoder
from data_prep.sources.dataset import Dataset, Images
from data_prep.sources.member import MAX_READ_BYTES, Member

KIND = "image-tree"
MAX_IMAGE_BYTES = 1 << 20  # A 32x32 PNG takes about 2.5 kB.
MAX_RESIZED_BYTES = MAX_READ_BYTES  # of an image of another size

# A file, its split and its label.
Placed = tuple[Member, str, int]


def is_ours(parts: tuple[str, ...]) -> bool:
    """Tells whether the components of a name end with SPLIT/CLASS/FILE."""
    return len(parts) >= 3 and parts[-3] in schema.SPLIT_WORDS


def is_misplaced(parts: tuple[str, ...]) -> bool:
    """Tells whether the components of a name are those of an image beside the CLASS folders.

    That is an image file directly in SPLIT, or in a folder inside SPLIT/CLASS.
    """
    return (
        is_image(parts)
        and not is_ours(parts)
        and not schema.SPLIT_WORDS.keys().isdisjoint(parts[:-1])
    )


def is_left_out(parts: tuple[str, ...]) -> bool:
    """Tells whether the components of a name are those of an image outside of all SPLIT folders."""
    return is_image(parts) and schema.SPLIT_WORDS.keys().isdisjoint(parts[:-1])


def is_image(parts: tuple[str, ...]) -> bool:
    """Tells whether the components of a name are those of an image file."""
    return parts[-1].lower().endswith(schema.IMAGE_EXTENSIONS)


def misplaced(member: Member) -> SourceError:
    """Returns the error for an image that `is_misplaced`."""
    split = next(part for part in member.parts if part in schema.SPLIT_WORDS)
    return SourceError(
        f"{member.name}: images must be {split}/CLASS/FILE, without other folders between; move it "
        "there, or out of the source"
    )


def load(members: Iterable[Member], resize: Optional[str] = None) -> Dataset:
    """Decodes all images.

    Args:
      members: the files.
      resize: how images of other sizes are brought to 32x32; None: they are refused.

    Raises:
      SourceError: a file is not an image, or not of 32x32 pixels without `resize`, an image is not
        in a class folder, a class folder has an unknown name, or a split has two folders.
    """
    images = decode(_placed(members), resize)
    validation = images[schema.VALIDATION] if len(images[schema.VALIDATION]) else None
    return Dataset(KIND, schema.CLASS_NAMES, images[schema.TRAIN], images[schema.EVAL], validation)


def decode(placed: Iterable[Placed], resize: Optional[str]) -> dict[str, Images]:
    """Decodes image files; returns the images of each split, in order.

    Raises:
      SourceError: two files have one name, or as for `decoder.decode_all`.
    """
    # Byte arrays grow in place, so that the images are in memory only once.
    pixels = {split: bytearray() for split in schema.SPLITS}
    labels = {split: bytearray() for split in schema.SPLITS}
    places: deque[tuple[str, int]] = deque()
    for image in decoder.decode_all(_contents(placed, places, resize), resize):
        split, label = places.popleft()
        pixels[split] += image
        labels[split].append(label)
    return {
        split: Images(
            np.frombuffer(pixels[split], np.uint8).reshape(-1, schema.IMAGE_BYTES),
            np.frombuffer(labels[split], np.uint8),
        )
        for split in schema.SPLITS
    }


def _contents(
    placed: Iterable[Placed], places: deque[tuple[str, int]], resize: Optional[str]
) -> Iterator[tuple[str, bytes]]:
    """Yields (name, content) of each image, and appends its split and label to `places`."""
    seen: set[str] = set()
    for member, split, label in placed:
        if member.name in seen:
            raise SourceError(f"{member.name}: there is more than one file of this name")
        seen.add(member.name)
        places.append((split, label))
        if resize is None and MAX_IMAGE_BYTES < member.size <= MAX_RESIZED_BYTES:
            raise SourceError(
                f"{member.name}: oversized: {member.size} bytes, where an image of 32x32 pixels "
                f"takes at most {MAX_IMAGE_BYTES}; {decoder.RESIZE_ADVICE}"
            )
        yield member.name, member.read(MAX_RESIZED_BYTES)


def _placed(members: Iterable[Member]) -> Iterator[Placed]:
    folders: dict[str, tuple[str, ...]] = {}
    for member in members:
        if is_misplaced(member.parts):
            raise misplaced(member)
        if is_ours(member.parts):
            split, label = _place(member)
            _check_folder(member, folders)
            yield member, split, label


def _check_folder(member: Member, folders: dict[str, tuple[str, ...]]) -> None:
    """Adds the folder of a file's split to `folders`, the folders by split.

    Raises:
      SourceError: another folder has images of the same split. Those of a copy would come into
        training and validation.
    """
    folder = member.parts[:-2]
    other = folders.setdefault(schema.SPLIT_WORDS[folder[-1]], folder)
    if other != folder:
        kind = "names" if other[:-1] == folder[:-1] else "folders"
        raise SourceError(
            f"{member.name}: {'/'.join(other)} and {'/'.join(folder)} are two {kind} of the same "
            "split; give one of them"
        )


def _place(member: Member) -> tuple[str, int]:
    """Returns the split and the label that the folders of a file give.

    Raises:
      SourceError: the class folder or the type of the file is unknown.
    """
    folder, name, file = member.parts[-3:]
    if name not in schema.CLASS_NAMES:
        raise SourceError(
            f"{member.name}: class folders must be {', '.join(schema.CLASS_NAMES)}, got {name!r}"
        )
    if not file.lower().endswith(schema.IMAGE_EXTENSIONS):
        raise SourceError(
            f"{member.name}: must be an image file ({', '.join(schema.IMAGE_EXTENSIONS)})"
        )
    return schema.SPLIT_WORDS[folder], schema.CLASS_NAMES.index(name)
