"""A tree of image files: train/CLASS/* and test/CLASS/*, optionally validation/CLASS/*."""

import os
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Optional

import numpy as np

from cifar10 import image_decoding, schema
from data_prep.errors import SourceError
from data_prep.sources import members
from data_prep.sources.dataset import Dataset, Images, Kind
from data_prep.tfrecord.write import MAX_CLASSES

# Up to here, Python takes most of an image's time, and threads do not help.
_SMALL_BYTES = 16 << 10

# A file, its split and its label.
Placed = tuple[members.Member, str, int]


class _ImageTree(Kind):
    name = "image-tree"
    looks = "train/CLASS/* and test/CLASS/* with image files"

    def claims(self, parts: tuple[str, ...]) -> bool:
        # An image beside the class folders ends a conversion, so it counts, too.
        return _is_placed(parts) or (is_image(parts) and _split_word(parts) is not None)

    def load(self, path: Path, resize: Optional[str]) -> Dataset:
        left_out, found = list[str](), dict[str, int]()
        images = decode(_placed(path, left_out, found), resize)
        names = tuple(sorted(found))  # as CIFAR-10's are
        order = np.array([names.index(name) for name in found], np.uint8)
        train, validation, test = (Images(one.pixels, order[one.labels]) for one in images.values())
        own = validation if len(validation) else None
        note = f"Left out, since they are in no folder of a split: {len(left_out):,} image files."
        return Dataset(self.name, names, train, test, own, note if left_out else "")


IMAGE_TREE = _ImageTree()


def is_image(parts: tuple[str, ...]) -> bool:
    """Tells whether the components of a path are those of an image file."""
    return parts[-1].lower().endswith(schema.IMAGE_EXTENSIONS)


def _is_placed(parts: tuple[str, ...]) -> bool:
    return len(parts) >= 3 and parts[-3] in schema.SPLIT_WORDS


def _split_word(parts: tuple[str, ...]) -> Optional[str]:
    return next((part for part in parts[:-1] if part in schema.SPLIT_WORDS), None)


def _placed(path: Path, left_out: list[str], found: dict[str, int]) -> Iterator[Placed]:
    """Yields the files of all splits; adds the names of images outside of these, and the classes.

    Raises:
      SourceError: a file is not an image in a class folder, or a split has two folders. Images of a
        copy would come into training and validation.
    """
    folders: dict[str, tuple[str, ...]] = {}
    for member in members.walk(path):
        folder, word = member.parts[:-2], _split_word(member.parts)
        if _is_placed(member.parts):
            class_name, split = member.parts[-2], schema.SPLIT_WORDS[folder[-1]]
            label = found.setdefault(class_name, len(found))
            if label >= MAX_CLASSES:
                raise SourceError(f"{member.name}: there are more than {MAX_CLASSES} classes")
            if not is_image(member.parts):
                known = ", ".join(schema.IMAGE_EXTENSIONS)
                raise SourceError(f"{member.name}: must be an image file ({known})")
            other = folders.setdefault(split, folder)
            if other != folder:
                raise SourceError(
                    f"{member.name}: {'/'.join(other)} and {'/'.join(folder)} are two folders of "
                    "the same split; give one of them"
                )
            yield member, split, label
        elif is_image(member.parts) and word is not None:
            raise SourceError(
                f"{member.name}: images must be {word}/CLASS/FILE, without other folders between; "
                "move it there, or out of the source"
            )
        elif is_image(member.parts):
            left_out.append(member.name)


def decode(placed: Iterable[Placed], resize: Optional[str]) -> dict[str, Images]:
    """Decodes image files; returns the images of each split, in order.

    Raises:
      SourceError: as for `decode_file`, for the first bad file in order.
    """
    # Byte arrays grow in place, so that the images are in memory only once.
    pixels = {split: bytearray() for split in schema.SPLITS}
    labels = {split: bytearray() for split in schema.SPLITS}
    waiting: deque[tuple[Callable[[], bytes], str, int]] = deque()

    def take() -> None:
        result, split, label = waiting.popleft()
        pixels[split] += result()
        labels[split].append(label)

    threads = len(os.sched_getaffinity(0))
    with warnings.catch_warnings(), ThreadPoolExecutor(threads) as pool:
        # `image_decoding.decode` sets filters of its own; threads restore each other's.
        warnings.simplefilter("ignore")
        for member, split, label in placed:
            work = partial(decode_file, member.read(), member.name, resize)
            result = pool.submit(work).result if member.size > _SMALL_BYTES else work
            waiting.append((result, split, label))
            if len(waiting) > 2 * threads:
                take()
        while waiting:
            take()
    return {
        split: Images(
            np.frombuffer(pixels[split], np.uint8).reshape(-1, schema.IMAGE_BYTES),
            np.frombuffer(labels[split], np.uint8),
        )
        for split in schema.SPLITS
    }


def decode_file(data: bytes, name: str, resize: Optional[str] = None) -> bytes:
    """Decodes an image file to 3,072 bytes in CHW order: see `cifar10.image_decoding`.

    Raises:
      SourceError: the file is not an image, is damaged, or has another size or depth.
    """
    try:
        pixels = image_decoding.decode(data, resize).pixels
    except image_decoding.ImageSizeError as error:
        advice = f"--resize {'|'.join(schema.RESIZES)} takes images of any size"
        raise SourceError(f"{name}: {error}; {advice}") from error
    except image_decoding.ImageFileError as error:
        raise SourceError(f"{name}: {error}") from error
    return pixels.transpose(2, 0, 1).tobytes()
