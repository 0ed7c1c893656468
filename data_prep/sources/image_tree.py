"""Trees of image files: train/CLASS/*, test/CLASS/* and at times validation/CLASS/*, or CLASS/*."""

import itertools
import os
import unicodedata
import warnings
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Optional

import numpy as np

from cifar10 import image_decoding, schema
from cifar10_program.paths import is_hidden
from data_prep.errors import SourceError, UsageError
from data_prep.sources import members
from data_prep.sources.dataset import Dataset, Images, Kind, hold_out
from data_prep.tfrecord.write import MAX_CLASSES

# Up to here, Python takes most of an image's time, and threads do not help.
_SMALL_BYTES = 16 << 10

# A file, its split and its label.
Placed = tuple[members.Member, str, int]
Layout = Callable[[tuple[str, ...]], tuple[Optional[str], Optional[str]]]


class _ImageTree(Kind):
    name = "image-tree"
    looks = "train/CLASS/* and test/CLASS/* with image files"
    takes = ("resize", "eval_fraction", "seed")
    unit = "split"  # Images outside of one are left out.
    eval_fraction: Optional[float] = None  # the default

    def claims(self, parts: tuple[str, ...]) -> bool:
        # An image beside the class folders ends a conversion, so it counts, too.
        return _is_placed(parts) or (is_image(parts) and _split_word(parts) is not None)

    def decides(self, parts: tuple[str, ...]) -> bool:
        return is_image(parts) and self.claims(parts)

    def load(
        self,
        path: Path,
        resize: Optional[str],
        eval_fraction: Optional[float] = None,
        seed: int = 0,
    ) -> Dataset:
        found, fraction = Found(), eval_fraction
        images = decode(self.placed(path, found), resize)
        names = tuple(sorted(found.labels))  # as CIFAR-10's are
        order = np.array([names.index(name) for name in found.labels], np.uint8)
        train, validation, test = (
            Images(images[split].pixels, order[images[split].labels]) for split in schema.SPLITS
        )
        own = validation if len(validation) else None
        if len(test) and fraction is not None:
            fault = f"the source has its own test folder of {len(test)} images"
            raise UsageError(f"--eval-fraction {fraction:g}: {fault}; leave the flag out")
        lines = found.left_out(path, self.unit)
        if not len(test):
            fraction = fraction or self.eval_fraction
            if fraction is None:
                has = f" ({found.folders[schema.VALIDATION][-1]}/ is for validation)" if own else ""
                raise SourceError(
                    f"{path}: test/CLASS/*, the images for evaluation, is missing{has}; add it, "
                    "rename a folder to test, or hold out a part of train/ by --eval-fraction 0.2"
                )
            # Classes and names of files decide, not their order in the source, so that a folder and
            # an archive of it give the same images.
            files = found.train_files
            whole = train.take(np.array(sorted(range(len(files)), key=files.__getitem__), np.int64))
            train, test = map(whole.take, hold_out(whole.labels, fraction, seed))
            how = f"the same share of each class (--eval-fraction {fraction:g} --seed {seed})."
            lines = [f"{len(test):,} of {len(whole):,} images are held out for eval, {how}", *lines]
        return Dataset(self.name, names, train, test, own, "\n".join(lines))

    def layout(self, path: Path) -> Layout:
        """Returns a function of a path in the source, in components.

        It says of which split a file in a class folder is, and else how an image would have to lie;
        None: it may lie there, and is left out.
        """

        def split_and_rule(parts: tuple[str, ...]) -> tuple[Optional[str], Optional[str]]:
            word = _split_word(parts)
            split = schema.SPLIT_WORDS[parts[-3]] if _is_placed(parts) else None
            return split, word and f"{word}/CLASS/FILE"

        return split_and_rule

    def placed(self, path: Path, found: "Found") -> Iterator[Placed]:
        """Yields the image files of all splits, and adds to `found` what else there is.

        Raises:
          SourceError: an image is not directly in a class folder, or a split has two folders.
            Images of a copy would come into training and validation.
        """
        layout = self.layout(path)
        for member in members.walk(path):
            folder, (split, rule) = member.parts[:-2], layout(member.parts)
            if not is_image(member.parts):
                found.others += [member.name] if split else []
            elif split:
                other = found.folders.setdefault(split, folder)
                if other != folder:
                    both = f"{'/'.join(other)} and {'/'.join(folder)}"
                    fault = f"{both} are two folders of the same split"
                    raise SourceError(f"{member.name}: {fault}; give one of them")
                yield member, split, found.label(member, split)
            elif rule:
                raise SourceError(
                    f"{member.name}: images must be {rule}, without other folders between; move it "
                    "there, or out of the source"
                )
            else:
                found.outside += 1


class _ClassFolders(_ImageTree):
    name = "class-folders"
    looks = "CLASS/* with image files"
    unit, eval_fraction = "class", 0.2

    def claims(self, parts: tuple[str, ...]) -> bool:
        return is_image(parts) and len(parts) > 1

    def layout(self, path: Path) -> Layout:
        folders = {member.parts[:-1] for member in members.walk(path) if is_image(member.parts)}
        shared = os.path.commonprefix([*folders])
        length = len(shared) + (1 if len(folders) == 1 else 2)  # of the path of an image in a class
        rule = "CLASS/FILE, or SPLIT/CLASS/FILE where SPLIT is train, validation or test"
        return lambda parts: (
            schema.TRAIN if len(parts) == length else None,
            rule if len(parts) > length else None,
        )


IMAGE_TREE, CLASS_FOLDERS = _ImageTree(), _ClassFolders()


@dataclass
class Found:
    """What a tree of images holds besides their pixels.

    Attributes:
      labels: label of each class, in the order in which the classes were found.
      folders: the folder of class folders of each split, in components.
      train_files: CLASS/FILE of each training image.
      outside: the number of image files in no class folder.
      others: names of files in class folders that are no images.
    """

    labels: dict[str, int] = field(default_factory=dict)
    folders: dict[str, tuple[str, ...]] = field(default_factory=dict)
    train_files: list[str] = field(default_factory=list)
    outside: int = 0
    others: list[str] = field(default_factory=list)

    def label(self, member: members.Member, split: str) -> int:
        """Adds an image file in a class folder; returns its label.

        Systems write accents in two forms, so a folder that went from one to another may be there
        twice; the two are one class.

        Raises:
          SourceError: there are more classes than records can have.
        """
        name = unicodedata.normalize("NFC", member.parts[-2])
        label = self.labels.setdefault(name, len(self.labels))
        if label >= MAX_CLASSES:
            raise SourceError(f"{member.name}: there are more than {MAX_CLASSES} classes")
        if split == schema.TRAIN:
            self.train_files.append(f"{name}/{member.parts[-1]}")
        return label

    def left_out(self, path: Path, unit: str) -> list[str]:
        """Returns lines on what was left out.

        Args:
          path: the source.
          unit: what an image outside of it was left out for: a split or a class.
        """
        lines = []
        if self.outside:
            lines.append(f"in no folder of a {unit}: {self.outside:,} image files")
        if self.others:
            more = f" and {len(self.others) - 1:,} more" if len(self.others) > 1 else ""
            lines.append(f"no image files: {self.others[0]}{more}")
        empty = [
            "/".join([*folder, entry.name])
            for folder in self.folders.values()
            for entry in (sorted(path.joinpath(*folder).iterdir()) if path.is_dir() else ())
            if entry.is_dir() and not is_hidden(entry.name)
            if unicodedata.normalize("NFC", entry.name) not in self.labels
        ]
        if empty:
            lines.append(f"no class of images: {', '.join(empty)}")
        return [f"Left out, since they are {line}." for line in lines]


def is_image(parts: tuple[str, ...]) -> bool:
    """Tells whether the components of a path are those of an image file."""
    return parts[-1].lower().endswith(schema.IMAGE_EXTENSIONS)


def _is_placed(parts: tuple[str, ...]) -> bool:
    return len(parts) >= 3 and parts[-3] in schema.SPLIT_WORDS


def _split_word(parts: tuple[str, ...]) -> Optional[str]:
    return next((part for part in parts[:-1] if part in schema.SPLIT_WORDS), None)


def decode(placed: Iterable[Placed], resize: Optional[str]) -> dict[str, Images]:
    """Decodes image files; returns the images of each split, in order.

    Raises:
      SourceError: as for `decode_file`, for the first bad file in order.
    """
    # Byte arrays grow in place, so that the images are in memory only once.
    images = {split: (bytearray(), bytearray()) for split in schema.SPLITS}
    # A file is read before the next one is asked for.
    files = ((member.read(), member.name, split, label) for member, split, label in placed)
    threads = len(os.sched_getaffinity(0))
    with warnings.catch_warnings(), ThreadPoolExecutor(threads) as pool:
        # `image_decoding.decode` sets filters of its own; threads restore each other's.
        warnings.simplefilter("ignore")
        while some := list(itertools.islice(files, 4 * threads)):
            contents, names, splits, labels = zip(*some)
            run = pool.map if max(map(len, contents)) > _SMALL_BYTES else map
            decoded = run(decode_file, contents, names, itertools.repeat(resize))
            for pixels, split, label in zip(decoded, splits, labels):
                images[split][0].extend(pixels)
                images[split][1].append(label)
    arrays = {split: [np.frombuffer(part, np.uint8) for part in images[split]] for split in images}
    return {
        split: Images(pixels.reshape(-1, schema.IMAGE_BYTES), labels)
        for split, (pixels, labels) in arrays.items()
    }


def decode_file(data: bytes, name: str, resize: Optional[str] = None) -> bytes:
    """Decodes an image file to 3,072 bytes in CHW order: see `cifar10.image_decoding`.

    Raises:
      SourceError: the file is not an image, is damaged, or has another size or depth.
    """
    try:
        pixels = image_decoding.decode(data, resize).pixels
    except image_decoding.ImageFileError as error:
        advice = f"; --resize {'|'.join(schema.RESIZES)} takes images of any size"
        is_sound = isinstance(error, image_decoding.ImageSizeError)
        raise SourceError(f"{name}: {error}{advice if is_sound else ''}") from error
    return pixels.transpose(2, 0, 1).tobytes()
