"""Puts a complete build in place, so that readers never take an incomplete one for complete.

A build is written into DIR/.building, where no reader looks. Publishing it takes several renames,
and a kill can come between them. So a marker file exists while they are made:

  1. create DIR/INCOMPLETE: readers refuse the folder, and the next run builds again
  2. remove the old manifest and record files
  3. rename the new record files into place
  4. rename the new manifest into place
  5. remove DIR/INCOMPLETE

The new files are flushed to disk (fsync) before step 1, and the folder after steps 1, 3, 4 and 5.
A kill before step 1 leaves the old content, one after step 5 the new content, and one in between a
folder with the marker.
"""

import contextlib
import fcntl
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from cifar10 import schema
from cifar10_program.paths import sync as sync
from data_prep.errors import OutputError

STAGING_NAME = ".building"
LOCK_NAME = ".lock"


@contextlib.contextmanager
def locked(path: Path, mode: str = "ab") -> Iterator[IO[Any]]:
    """Opens a file and holds its lock, which the kernel releases if the process is killed.

    Args:
      path: path of the file.
      mode: `ab`: nobody else may hold the lock; `rb`: others may hold it in this mode.

    Raises:
      OutputError: another process holds the lock.
    """
    kind = fcntl.LOCK_SH if mode == "rb" else fcntl.LOCK_EX
    with path.open(mode) as file:
        try:
            fcntl.flock(file, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            way_out = "wait for it or choose another folder"
            raise OutputError(f"{path.parent}: another run is at work there; {way_out}") from None
        yield file


def discard_staging(folder: Path) -> None:
    """Removes DIR/.building if it exists."""
    with contextlib.suppress(FileNotFoundError):
        shutil.rmtree(folder / STAGING_NAME)


def record_files(folder: Path, ours: bool = True) -> dict[str, str]:
    """Returns the names of the record files in `folder`, sorted, and the split of each.

    Args:
      folder: the folder.
      ours: whether only names count that data_prep gives; else those of any program do.
    """
    parse = schema.parse_file_name if ours else schema.parse_record_name
    parsed = {entry.name: parse(entry.name) for entry in folder.iterdir()}
    return {name: facts[0] for name, facts in sorted(parsed.items()) if facts is not None}


def check_replaceable(folder: Path) -> None:
    """Checks that `publish` can remove what it replaces.

    Raises:
      OutputError: a folder has the name of a record file, of the manifest or of the marker.
    """
    for name in (schema.MANIFEST_NAME, schema.INCOMPLETE_NAME, *record_files(folder)):
        path = folder / name
        if path.is_dir() and not path.is_symlink():
            fault = "is a folder, where a file of this name is to be written"
            raise OutputError(f"{path}: {fault}; move it away, or choose another --out")


def publish(folder: Path) -> None:
    """Replaces the records and the manifest in `folder` by those of the build in DIR/.building."""
    staging, marker = folder / STAGING_NAME, folder / schema.INCOMPLETE_NAME
    for path in staging.iterdir():
        sync(path)
    marker.touch()
    sync(folder)
    for name in (schema.MANIFEST_NAME, *record_files(folder)):
        (folder / name).unlink(missing_ok=True)
    for name in record_files(staging):
        os.replace(staging / name, folder / name)
    sync(folder)
    os.replace(staging / schema.MANIFEST_NAME, folder / schema.MANIFEST_NAME)
    sync(folder)
    marker.unlink()
    sync(folder)
