"""Finds the files of a folder, a tar (with any compression) or a zip, one by one."""

import mmap
import os
import re
import stat
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Optional

from cifar10 import schema
from data_prep.errors import SourceError
from data_prep.sources import member, tar_members
from data_prep.sources.member import Member

_ZIP_MAGIC = b"PK"
_ZIP_ENTRY = rb"PK\x01\x02"  # the beginning of an entry of the directory
_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"


def walk(path: Path, of_any_size: bool = False) -> Iterator[Member]:
    """Yields the regular files of a folder or archive; read each before asking for the next one.

    Hidden files, and folders that operating systems leave behind, are skipped.

    Args:
      path: the folder or archive.
      of_any_size: whether it may hold images of other sizes than 32x32, which take more bytes.

    Raises:
      SourceError: there is no such path, it is not a known archive, it is damaged, or it exceeds
        MAX_MEMBERS, or MAX_TOTAL_BYTES or MAX_RESIZED_TOTAL_BYTES.
    """
    most = member.MAX_RESIZED_TOTAL_BYTES if of_any_size else member.MAX_TOTAL_BYTES
    if path.is_dir():
        members = _walk_folder(path)
    elif path.is_file():
        members = _walk_archive(path, most)
    else:
        raise SourceError(
            f"{path}: no such file or folder; give an archive, a folder or 'synthetic'"
        )
    total = 0
    for count, one in enumerate(members, 1):
        total += 0 if one is None else one.size
        if count > member.MAX_MEMBERS:
            raise member.too_many(path)
        if total > most:
            raise SourceError(
                f"{path}: oversized: more than {most:,} bytes; the published set takes 185 MB; "
                f"only --resize {'|'.join(schema.RESIZES)} takes more, of images of other sizes"
            )
        if one is not None and not one.is_hidden:
            yield one


def _walk_folder(root: Path) -> Iterator[Optional[Member]]:
    """Yields the files of a folder, and None for each folder inside it and each hidden file."""

    def fail(error: OSError) -> None:
        raise SourceError(f"{error.filename}: {error.strerror}") from error

    for folder, subfolders, names in os.walk(root, onerror=fail, followlinks=True):
        # Sort, so that the same folder always gives the same records.
        subfolders[:] = sorted(name for name in subfolders if not member.is_hidden(name))
        relative = os.path.relpath(folder, root).replace(os.sep, "/")
        prefix = "" if relative == "." else f"{relative}/"
        if prefix:
            yield None
        for name in sorted(names):
            # Hidden files count, but are not looked at: Emacs locks a file by a link to nowhere.
            yield (
                None
                if member.is_hidden(name)
                else _folder_member(os.path.join(folder, name), prefix + name)
            )


def _folder_member(path: str, name: str) -> Member:
    def read(limit: int) -> bytes:
        try:
            with open(path, "rb") as file:
                return file.read(limit)
        except OSError as error:
            raise SourceError(f"{name}: {error.strerror}") from error

    try:
        status = os.stat(path)
    except OSError as error:
        raise SourceError(f"{name}: {error.strerror}") from error
    if not stat.S_ISREG(status.st_mode):  # Reading a pipe or a device might never end.
        raise SourceError(f"{name}: is not a regular file")
    return Member(name, status.st_size, read)


def _walk_archive(path: Path, most_bytes: int) -> Iterator[Optional[Member]]:
    """Yields the files of an archive, and None for each folder in it."""
    try:
        with path.open("rb") as file:
            magic = file.read(6)
        if not magic:
            raise SourceError(f"{path}: the file is empty")
        if magic.startswith(_ZSTD_MAGIC):
            raise SourceError(f"{path}: Python cannot read zstd; unpack it first (zstd -d)")
        if magic.startswith(_ZIP_MAGIC):
            yield from _walk_zip(path)
        else:
            yield from tar_members.walk(path, magic, most_bytes)
    except (SourceError, MemoryError):
        raise
    except Exception as error:  # Many types again, e.g. IndexError for an empty name in a zip.
        raise SourceError(f"{path}: not an archive, or damaged or truncated: {error}") from error


def _walk_zip(path: Path) -> Iterator[Optional[Member]]:
    """Yields the files of a zip, and None for each folder in it."""
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        # zipfile makes an object of each entry of the directory at once, whatever their number.
        if sum(1 for _ in re.finditer(_ZIP_ENTRY, content)) > member.MAX_MEMBERS:
            raise member.too_many(path)
    with zipfile.ZipFile(path) as archive:
        for info in archive.infolist():
            if info.is_dir():
                yield None
            else:
                name = member.inside(info.filename, path)
                yield Member(name, info.file_size, _zip_read(archive, info))


def _zip_read(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> Callable[[int], bytes]:
    def read(limit: int) -> bytes:
        with archive.open(info) as file:
            return file.read(limit)

    return read
