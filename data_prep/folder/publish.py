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

import errno
import fcntl
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from cifar10 import schema
from cifar10_program import DATA, started_as
from data_prep.errors import OutputError

STAGING_NAME = ".building"
LOCK_NAME = ".lock"


def may_lock(folder: Path) -> bool:
    """Tells whether this process may write the lock, or create it in the folder."""
    lock = folder / LOCK_NAME
    return os.access(lock if lock.exists() else folder, os.W_OK, effective_ids=True)


def make_folder(folder: Path) -> None:
    """Creates a folder, and those above it, unless they exist.

    Raises:
      OutputError: a file or a link to nothing is in the way.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except FileExistsError as error:
        kind = f"a link to {os.readlink(error.filename)}, which does not exist"
        what = kind if os.path.islink(error.filename) else "a file"
        raise OutputError(f"{error.filename}: is {what}; --out must be a folder") from error


def open_own(path: Path) -> BinaryIO:
    """Opens a file of our own for appending; creates it if it is missing.

    Raises:
      OutputError: it is a symbolic link, which somebody else has put there.
    """
    try:
        return open(
            os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_APPEND, 0o666), "ab"
        )
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
        raise OutputError(f"{path}: is a link, and must be a file; move it away") from error


def write_whole(path: Path, content: bytes) -> None:
    """Writes a file under a temporary name of its own, and renames it; follows no link."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        with temporary.open("xb") as file:
            file.write(content)
        sync(temporary)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def exclusive(folder: Path) -> Iterator[None]:
    """Creates `folder` and holds its lock, which the kernel releases if the process is killed.

    Raises:
      OutputError: `folder` cannot be one, or another process is building there.
    """
    make_folder(folder)
    with open_own(folder / LOCK_NAME) as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise OutputError(
                f"{folder}: another run is building there; wait for it or choose another --out"
            ) from None
        yield


def is_held(folder: Path) -> bool:
    """Tells whether another process holds the lock of `folder` at this moment."""
    try:
        with (folder / LOCK_NAME).open("rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # There is none, or this user may not read it.
        return False
    return False


def start_staging(folder: Path) -> Path:
    """Returns an empty DIR/.building; removes what a killed run left in it."""
    staging = folder / STAGING_NAME
    discard_staging(folder)
    staging.mkdir()
    return staging


def discard_staging(folder: Path) -> None:
    """Removes DIR/.building if it exists."""
    staging = folder / STAGING_NAME
    if staging.is_symlink():
        staging.unlink()
    elif staging.exists():
        shutil.rmtree(staging)


def record_files(folder: Path, ours: bool = True) -> list[str]:
    """Returns the sorted names of the record files in `folder`, of data_prep or of any program."""
    parse = schema.parse_file_name if ours else schema.parse_record_name
    return sorted(entry.name for entry in folder.iterdir() if parse(entry.name))


def is_read(name: str) -> bool:
    """Tells whether readers of a folder use a file of this name: a record file or one beside it."""
    others = (schema.MANIFEST_NAME, schema.INCOMPLETE_NAME)
    return name in others or schema.parse_record_name(name) is not None


def is_incomplete(folder: Path) -> bool:
    """Tells whether a run was interrupted while it published a build."""
    return (folder / schema.INCOMPLETE_NAME).exists()


def check_replaceable(folder: Path) -> None:
    """Checks that `publish` can remove what it replaces.

    Raises:
      OutputError: a folder has the name of a record file, of the manifest or of the marker.
    """
    for name in (schema.MANIFEST_NAME, schema.INCOMPLETE_NAME, *record_files(folder)):
        path = folder / name
        if path.is_dir() and not path.is_symlink():
            raise OutputError(
                f"{path}: is a folder, where a file of this name is to be written; move it away, "
                "or choose another --out"
            )


def publish(folder: Path) -> None:
    """Replaces the records and the manifest in `folder` by those of the build in DIR/.building.

    Raises:
      OutputError: as for `check_replaceable`; the folder stays as it was.
    """
    check_replaceable(folder)
    staging = folder / STAGING_NAME
    for path in staging.iterdir():
        sync(path)
    marker = _mark(folder)
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


def _mark(folder: Path) -> Path:
    """Creates DIR/INCOMPLETE and returns its path; if that fails, the folder stays as it was."""
    marker = folder / schema.INCOMPLETE_NAME
    existed = marker.exists()
    try:
        text = f"A build did not finish. Run `{started_as(DATA)}` again.\n"
        write_whole(marker, text.encode())
        sync(folder)
    except BaseException:
        if not existed:
            marker.unlink(missing_ok=True)
        raise
    return marker


def sync(path: Path) -> None:
    """Waits until the content of a file, or the entries of a folder, are on disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        # Some network file systems flush folders by themselves and refuse fsync on them.
        if error.errno != errno.EINVAL or not path.is_dir():
            raise
    finally:
        os.close(descriptor)
