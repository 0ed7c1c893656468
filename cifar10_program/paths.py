"""Paths as flags give them, and which of them can be used."""

import argparse
import os


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
