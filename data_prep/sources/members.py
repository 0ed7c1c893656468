"""The files of a source: of a folder, a tar (with any compression) or a zip, one by one.

Nothing is extracted, so no archive can write files. Sizes are known in advance, every read is
bounded, and so is the number of members, folders included. So a small archive can neither unpack
into an unlimited amount of data nor keep the reader busy without end.
"""

import hashlib
import os
import posixpath
import stat
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Optional, Union

from cifar10_program.paths import is_hidden
from data_prep.errors import SourceError

# A batch of the published archives takes 31 MB, a photograph some megabytes.
MAX_READ_BYTES = 64 << 20
# The 350,000 images of Kaggle are the most files, 400,000 photographs of 0.7 MB the most bytes.
MAX_MEMBERS = 400_000  # Files, folders, links and others together.
MAX_TOTAL_BYTES = 1 << 38
_MAX_HEADER_BYTES = 1 << 14  # What tarfile reads into memory of a name or of other attributes.
_BLOCK = 1 << 20


@dataclass(frozen=True)
class Member:
    """A regular file inside a source.

    Attributes:
      name: path inside the source, with forward slashes.
      size: size in bytes.
    """

    name: str
    size: int
    _open: Callable[[], Any]

    @property
    def parts(self) -> tuple[str, ...]:
        """The components of the name."""
        return tuple(self.name.split("/"))

    def read(self, most: int = MAX_READ_BYTES) -> bytes:
        """Returns the whole content.

        Raises:
          SourceError: the file is empty, larger than `most` bytes, damaged, or not of its size.
        """
        if self.size == 0:
            raise SourceError(f"{self.name}: the file is empty")
        if self.size > most:
            raise SourceError(f"{self.name}: oversized: {self.size} bytes, the limit is {most}")
        try:
            with self._open() as file:
                data: bytes = file.read(self.size + 1)
        except MemoryError:
            raise
        except Exception as error:  # The standard library raises many types on damaged archives.
            raise SourceError(f"{self.name}: damaged or truncated: {error}") from error
        if len(data) != self.size:
            raise SourceError(f"{self.name}: truncated: {len(data)} of {self.size} bytes")
        return data


def file_sha256(path: Path) -> str:
    """Returns the SHA-256 of a file's content, in hex."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            digest.update(block)
    return digest.hexdigest()


def walk(path: Path) -> Iterator[Member]:
    """Yields the regular files of a folder or archive; read each before asking for the next one.

    Hidden files, and folders that operating systems leave behind, are skipped.

    Raises:
      SourceError: there is no such path, it is not a known archive, it is damaged, or it exceeds
        MAX_MEMBERS or MAX_TOTAL_BYTES.
    """
    if path.is_dir():
        members = _walk_folder(path)
    elif path.is_file():
        members = _walk_archive(path)
    else:
        raise SourceError(f"{path}: no such file or folder; give an archive, folder or 'synthetic'")
    total = 0
    for count, member in enumerate(members, 1):
        total += 0 if member is None else member.size
        if count > MAX_MEMBERS or total > MAX_TOTAL_BYTES:
            raise SourceError(
                f"{path}: oversized: more than {MAX_MEMBERS:,} files and folders, or "
                f"{MAX_TOTAL_BYTES:,} bytes; the published archives have 8, an image tree 60,000"
            )
        if member is not None and not any(map(is_hidden, member.parts)):
            yield member


def _walk_folder(root: Path) -> Iterator[Optional[Member]]:
    """Yields the files of a folder, and None for each folder and each hidden file."""

    def fail(error: OSError) -> None:
        raise error

    for folder, subfolders, names in os.walk(root, onerror=fail, followlinks=True):
        # Sort, so that the same folder always gives the same records.
        subfolders[:] = sorted(name for name in subfolders if not is_hidden(name))
        relative = os.path.relpath(folder, root).replace(os.sep, "/")
        prefix = "" if relative == "." else f"{relative}/"
        yield None
        for name in sorted(names):
            # Hidden files count, but are not looked at: Emacs locks a file by a link to nowhere.
            if is_hidden(name):
                yield None
                continue
            path, name = os.path.join(folder, name), prefix + name
            try:
                status = os.stat(path)
            except OSError as error:
                advice = "mend it, or take it out of the source"
                raise SourceError(f"{name}: cannot be read: {error.strerror}; {advice}") from error
            if not stat.S_ISREG(status.st_mode):  # Reading a pipe or a device might never end.
                raise SourceError(f"{name}: is not a regular file")
            yield Member(name, status.st_size, partial(open, path, "rb"))


def _walk_archive(path: Path) -> Iterator[Optional[Member]]:
    """Yields the files of an archive, and None for each folder in it."""
    try:
        with path.open("rb") as file:
            is_zip = file.read(2) == b"PK"
        yield from _walk_zip(path) if is_zip else _walk_tar(path)
    except (SourceError, MemoryError):
        raise
    except Exception as error:  # Many types again, e.g. IndexError for an empty name in a zip.
        reason = str(error).partition("\n")[0].rstrip(":") or type(error).__name__
        raise SourceError(
            f"{path}: not a tar (plain, gzip, bzip2, xz) or zip, or damaged or truncated: {reason}"
        ) from error


def _walk_zip(path: Path) -> Iterator[Optional[Member]]:
    with zipfile.ZipFile(path) as archive:
        for info in archive.infolist():
            name, opened = posixpath.normpath(info.filename), partial(archive.open, info)
            yield None if info.is_dir() else Member(name, info.file_size, opened)


class _StrictInfo(tarfile.TarInfo):
    """The header of a file in a tar; tarfile itself takes a damaged or missing one for the end."""

    @classmethod
    def frombuf(cls, buf: Union[bytes, bytearray], encoding: str, errors: str) -> "_StrictInfo":
        """Reads a header.

        Raises:
          ReadError: it is damaged or missing, or announces more than a name or a file.
        """
        try:
            info = super().frombuf(buf, encoding, errors)
        except tarfile.EOFHeaderError:  # type: ignore[attr-defined]  # the block that ends a tar
            raise
        except tarfile.HeaderError as error:
            raise tarfile.ReadError(f"{error}: the end of the archive is missing") from error
        most = MAX_TOTAL_BYTES if info.isreg() else _MAX_HEADER_BYTES
        if info.type == tarfile.GNUTYPE_SPARSE or not 0 <= info.size <= most:
            raise tarfile.ReadError("oversized: a header exceeds the bounds")
        return info


def _walk_tar(path: Path) -> Iterator[Optional[Member]]:
    with tarfile.open(path, tarinfo=_StrictInfo) as archive:
        for info in archive:
            if info.size < 0 or not (info.isdir() or info.isreg()):
                raise SourceError(f"{path}: {info.name} is a link or device, not a file")
            name, opened = posixpath.normpath(info.name), partial(archive.extractfile, info)
            yield None if info.isdir() else Member(name, info.size, opened)
            archive.members.clear()  # type: ignore[attr-defined]
        # A compressed file has its checksum at its end.
        while archive.fileobj is not None and archive.fileobj.read(_BLOCK):
            pass
