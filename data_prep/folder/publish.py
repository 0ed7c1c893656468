"""Puts a finished build in place so that nothing half-written is ever taken for done.

A build is written into DIR/.building, where no reader looks. Publishing is several renames, which
a kill can part, so they are fenced by a marker:

  1. DIR/INCOMPLETE appears: readers refuse the folder, the next run builds anew
  2. the old manifest and record files go
  3. the new record files are renamed in
  4. the new manifest is renamed in
  5. DIR/INCOMPLETE goes: done

Each step is on disk (fsync of files and folder) before the next begins. A kill before 1 leaves
what was there, after 5 the new build, and in between a folder that says so.
"""

import errno
import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cifar10 import schema
from data_prep.errors import OutputError

STAGING_NAME = ".building"
LOCK_NAME = ".lock"


@contextmanager
def exclusive(folder: Path) -> Iterator[None]:
    """Creates `folder` and holds its lock, which the kernel lets go of even on a kill.

    Raises:
      OutputError: `folder` is a file, or another process is building there.
    """
    if folder.exists() and not folder.is_dir():
        raise OutputError(f"{folder}: is a file; --out must be a folder")
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / LOCK_NAME).open("ab") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise OutputError(
                f"{folder}: another run is building there; wait for it or choose another --out"
            ) from None
        yield


def start_staging(folder: Path) -> Path:
    """Returns an empty DIR/.building, without what a killed run left there."""
    staging = folder / STAGING_NAME
    discard_staging(folder)
    staging.mkdir()
    return staging


def discard_staging(folder: Path) -> None:
    """Removes DIR/.building, if it is there."""
    staging = folder / STAGING_NAME
    if staging.exists():
        shutil.rmtree(staging)


def record_files(folder: Path) -> list[str]:
    """Names the record files of any split in `folder`, ours or the tutorial's, sorted."""
    return sorted(
        entry.name for entry in folder.iterdir() if schema.parse_file_name(entry.name) is not None
    )


def is_incomplete(folder: Path) -> bool:
    """Tells whether a build was cut off while it was being published."""
    return (folder / schema.INCOMPLETE_NAME).exists()


def publish(folder: Path) -> None:
    """Replaces the records and manifest in `folder` by those in its staging; see above."""
    staging = folder / STAGING_NAME
    for path in staging.iterdir():
        sync(path)
    marker = folder / schema.INCOMPLETE_NAME
    marker.write_text("A build was cut off here. Run `python -m data_prep` again.\n")
    sync(marker)
    sync(folder)
    (folder / schema.MANIFEST_NAME).unlink(missing_ok=True)
    for name in record_files(folder):
        (folder / name).unlink()
    for name in record_files(staging):
        os.replace(staging / name, folder / name)
    sync(folder)
    os.replace(staging / schema.MANIFEST_NAME, folder / schema.MANIFEST_NAME)
    sync(folder)
    marker.unlink()
    sync(folder)
    staging.rmdir()


def sync(path: Path) -> None:
    """Waits until a file's content, or a folder's entries, are on disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        # Some network file systems keep folders in sync by themselves and refuse to be asked.
        if error.errno != errno.EINVAL or not path.is_dir():
            raise
    finally:
        os.close(descriptor)
