"""Names of files, folders and patterns → the image files that they stand for."""

import glob
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Callable

import tensorflow.compat.v1 as tf

from cifar10.errors import UserError
from cifar10.schema import IMAGE_EXTENSIONS
from cifar10_program.paths import is_utf8

_PATTERN_CHARACTERS = frozenset("*?[")


def expand(place: str, report: Callable[[str], None]) -> list[str]:
    """Returns the image files that a name stands for.

    Args:
      place: a file, which need not exist; a folder, for all image files in it and in the folders
        inside it, linked ones included and hidden ones left out; or a pattern with `*`, `?`,
        `[...]` or, on this machine's file systems, `**` for any folders. A pattern may match
        folders, too.
      report: a function that gets a line about each folder that cannot be read, and so is left out.

    Raises:
      UserError: no file matches the pattern, its file system cannot be used, or no image file is in
        the folder, although all of it could be read.
    """
    unreadable: list[str] = []

    def note(line: str) -> None:
        unreadable.append(line)
        report(line)

    if not is_utf8(place):  # TensorFlow's file systems do not take it; reading it says so.
        return [place]
    if tf.io.gfile.isdir(place):
        paths = _images_below(place, note)
        if not paths and not unreadable:
            raise UserError(f"{place} holds no image files ({', '.join(IMAGE_EXTENSIONS)})")
        return paths
    if _PATTERN_CHARACTERS.isdisjoint(place) or _exists(place):
        return [place]
    matches = _matches(place)
    if not matches:
        raise UserError(f"{place} matches no file; check the pattern and the current folder")
    lists = [
        _images_below(one, note) if is_utf8(one) and tf.io.gfile.isdir(one) else [one]
        for one in matches
    ]
    # `a/**` matches both a folder and the files in it.
    return list(dict.fromkeys(path for paths in lists for path in paths))


def _exists(place: str) -> bool:
    with _searching(place):
        return bool(tf.io.gfile.exists(place))


def _matches(pattern: str) -> list[str]:
    with _searching(pattern):
        if "://" in pattern:
            return sorted(tf.io.gfile.glob(pattern))
        return sorted(glob.glob(pattern, recursive=True))


@contextmanager
def _searching(pattern: str) -> Iterator[None]:
    try:
        yield
    except tf.errors.OpError as error:
        raise UserError(f"{pattern} cannot be searched: {error.message}") from error


def _images_below(root: str, report: Callable[[str], None]) -> list[str]:
    found = []
    walk = tf.io.gfile.walk(root) if "://" in root else _walk(root, report)
    for folder, subfolders, names in walk:
        subfolders[:] = [name for name in subfolders if not _is_left_behind(name)]
        found += [
            os.path.join(folder, name)
            for name in names
            if name.lower().endswith(IMAGE_EXTENSIONS) and not _is_left_behind(name)
        ]
    return sorted(found)


def _walk(
    root: str, report: Callable[[str], None]
) -> Iterator[tuple[str, list[str], Iterable[str]]]:
    """Yields what `os.walk` does, linked folders after the others, each real folder once.

    So links that form a circle come to an end.
    """

    def leave_out(error: OSError) -> None:
        report(f"{error.filename} cannot be read: {error.strerror}")

    visited: set[str] = set()
    starts = [root]
    for start in starts:
        for folder, subfolders, names in os.walk(start, onerror=leave_out):
            real = os.path.realpath(folder)
            if real in visited:
                subfolders.clear()
                continue
            visited.add(real)
            yield folder, subfolders, names
            paths = [os.path.join(folder, name) for name in sorted(subfolders)]
            starts += filter(os.path.islink, paths)


def _is_left_behind(name: str) -> bool:
    """Tells whether a file or folder is hidden, or one that an operating system leaves behind."""
    return name.startswith(".") or name == "__MACOSX"
