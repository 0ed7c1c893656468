"""Names of files, folders and patterns → the image files that they stand for."""

import glob
import os
from typing import Callable

import tensorflow.compat.v1 as tf

from cifar10.errors import UserError
from cifar10.schema import IMAGE_EXTENSIONS
from cifar10_program.paths import is_utf8


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
    try:
        if set("*?[").isdisjoint(place) or tf.io.gfile.exists(place):
            return [place]
        is_remote = "://" in place
        matches = sorted(tf.io.gfile.glob(place) if is_remote else glob.glob(place, recursive=True))
    except tf.errors.OpError as error:
        raise UserError(f"{place} cannot be searched: {error.message}") from error
    if not matches:
        raise UserError(f"{place} matches no file; check the pattern and the current folder")
    lists = [
        _images_below(one, note) if is_utf8(one) and tf.io.gfile.isdir(one) else [one]
        for one in matches
    ]
    # `a/**` matches both a folder and the files in it.
    return list(dict.fromkeys(path for paths in lists for path in paths))


def _images_below(root: str, report: Callable[[str], None]) -> list[str]:
    """Returns the image files in a folder, each real folder once: links may form a circle."""

    def leave_out(error: OSError) -> None:
        report(f"{error.filename} cannot be read: {error.strerror}")

    is_remote = "://" in root
    found, visited = [], set()
    walk = tf.io.gfile.walk(root) if is_remote else os.walk(root, True, leave_out, followlinks=True)
    for folder, subfolders, names in walk:
        real = folder if is_remote else os.path.realpath(folder)
        subfolders[:] = [name for name in subfolders if not _is_left_behind(name)]
        if real in visited:
            subfolders.clear()
            continue
        visited.add(real)
        found += [
            os.path.join(folder, name)
            for name in names
            if name.lower().endswith(IMAGE_EXTENSIONS) and not _is_left_behind(name)
        ]
    return sorted(found)


def _is_left_behind(name: str) -> bool:
    """Tells whether a file or folder is hidden, or one that an operating system leaves behind."""
    return name.startswith(".") or name == "__MACOSX"
