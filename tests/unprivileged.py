"""Acts as a user whom the permissions of files hold back; root may read and write everywhere."""

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

_NOBODY = 65534


@contextlib.contextmanager
def unprivileged() -> Iterator[None]:
    """Makes root another user for a while; any other user stays."""
    was_root = os.geteuid() == 0
    if was_root:
        os.seteuid(_NOBODY)
    try:
        yield
    finally:
        if was_root:
            os.seteuid(0)


@contextlib.contextmanager
def open_folder() -> Iterator[Path]:
    """Makes a folder that every user may enter, unlike pytest's own."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        try:
            yield Path(folder)
        finally:
            os.chmod(folder, 0o755)
