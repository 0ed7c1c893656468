"""Paths: as flags give them, which of them are used and which are left out; writing to the disk."""

import argparse
import errno
import os
from typing import Union


def is_hidden(name: str) -> bool:
    """Returns whether a file or folder is hidden, or one that an operating system leaves behind."""
    return name.startswith(".") or name == "__MACOSX"


def sync(path: Union[str, "os.PathLike[str]"]) -> None:
    """Waits until the content of a file, or the entries of a folder, are on disk.

    Args:
      path: path of a file or folder; for one with a scheme, such as `gs://`, nothing is done.
    """
    if "://" in str(path):
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        # Some network file systems flush folders by themselves and refuse fsync on them.
        if error.errno != errno.EINVAL or not os.path.isdir(path):
            raise
    finally:
        os.close(descriptor)


def is_utf8(path: str) -> bool:
    """Returns whether a path is UTF-8; Python has surrogates in place of other bytes."""
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return True


def is_opened_as_utf8(path: str) -> bool:
    """Returns whether Python opens the same file as TensorFlow, whose paths are UTF-8.

    Python encodes a path as the locale says: in en_US.ISO-8859-1, only ASCII is the same in both.
    """
    try:
        return os.fsencode(path) == path.encode()
    except UnicodeEncodeError:
        return False


def path_of(text: str) -> str:
    """Returns the path in a flag, with the home for `~`, which shells leave in `--out=~/a`.

    Raises:
      argparse.ArgumentTypeError: it begins with the home of a user who is not known.
    """
    path = os.path.expanduser(text)
    if path.startswith("~"):
        raise argparse.ArgumentTypeError(
            f"{text}: there is no user {path[1:].partition('/')[0]}; a folder of that name here is "
            f"./{text}"
        )
    return path


def real(folder: str) -> str:
    """Returns the folder's one path; that of a folder with a scheme, such as `gs://`, as it is."""
    return folder.rstrip("/") if "://" in folder else os.path.realpath(folder)
