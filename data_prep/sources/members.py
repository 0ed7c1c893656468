"""Reads the files of a folder, a tar (with any compression) or a zip, one by one, in memory.

Nothing is extracted, so no archive can write files. Names that lead out of the archive are refused
nevertheless, since no published file has one. Sizes are known in advance and every read is bounded,
so a small archive cannot unpack into an unlimited amount of data.
"""

import bz2
import gzip
import lzma
import os
import stat
import tarfile
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Callable, Optional, cast

from data_prep.errors import SourceError

# The published archives unpack to 185 MB, and the 60,000 images take 240 MB as PNG files.
MAX_TOTAL_BYTES = 1 << 30
MAX_READ_BYTES = 64 << 20
MAX_MEMBERS = 200_000

_OPENERS: dict[bytes, Callable[[Path], object]] = {
    b"\x1f\x8b": gzip.open,
    b"BZh": bz2.open,
    b"\xfd7zXZ": lzma.open,
    b"\x5d\x00\x00": lzma.open,
}
_ZIP_MAGIC = b"PK"
_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"


@dataclass(frozen=True)
class Member:
    """A regular file inside a source.

    Attributes:
      name: path inside the source, with forward slashes.
      size: size in bytes.
    """

    name: str
    size: int
    _read: Callable[[int], bytes]

    @property
    def parts(self) -> tuple[str, ...]:
        """The components of the name."""
        return tuple(self.name.split("/"))

    def read(self, limit: int) -> bytes:
        """Returns the whole content.

        Raises:
          SourceError: the file is empty, larger than `limit` bytes, damaged, or not of its size.
        """
        if self.size == 0:
            raise SourceError(f"{self.name}: the file is empty")
        if self.size > limit:
            raise SourceError(
                f"{self.name}: oversized: {self.size} bytes, where at most {limit} are expected"
            )
        try:
            data = self._read(self.size + 1)
        except (SourceError, MemoryError):
            raise
        except Exception as error:  # The standard library raises many types on damaged archives.
            raise SourceError(f"{self.name}: damaged or truncated: {error}") from error
        if len(data) != self.size:
            raise SourceError(f"{self.name}: truncated: {len(data)} of {self.size} bytes")
        return data


def walk(path: Path) -> Iterator[Member]:
    """Yields the regular files of a folder or archive; read each before asking for the next one.

    Hidden files, and folders that operating systems leave behind, are skipped.

    Raises:
      SourceError: there is no such path, it is not a known archive, it is damaged, or it exceeds
        MAX_MEMBERS or MAX_TOTAL_BYTES.
      SourceError: no such path, no known archive, damage, or more than the bounds above.
    """
    if path.is_dir():
        members = _walk_folder(path)
    elif path.is_file():
        members = _walk_archive(path)
    else:
        raise SourceError(
            f"{path}: no such file or folder; give an archive, a folder or 'synthetic'"
        )
    total = 0
    for count, member in enumerate(members, 1):
        total += member.size
        if count > MAX_MEMBERS or total > MAX_TOTAL_BYTES:
            raise SourceError(
                f"{path}: oversized: more than {MAX_MEMBERS} files or {MAX_TOTAL_BYTES} bytes; "
                "the published set is 185 MB"
            )
        if not any(part.startswith(".") or part == "__MACOSX" for part in member.parts):
            yield member


def _walk_folder(root: Path) -> Iterator[Member]:
    def fail(error: OSError) -> None:
        raise SourceError(f"{error.filename}: {error.strerror}") from error

    for folder, subfolders, names in os.walk(root, onerror=fail, followlinks=True):
        # Sort, so that the same folder always gives the same records.
        subfolders[:] = sorted(name for name in subfolders if not name.startswith("."))
        relative = os.path.relpath(folder, root).replace(os.sep, "/")
        prefix = "" if relative == "." else f"{relative}/"
        for name in sorted(names):
            yield _folder_member(os.path.join(folder, name), prefix + name)


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


def _walk_archive(path: Path) -> Iterator[Member]:
    try:
        with path.open("rb") as file:
            magic = file.read(6)
        if not magic:
            raise SourceError(f"{path}: the file is empty")
        if magic.startswith(_ZSTD_MAGIC):
            raise SourceError(f"{path}: Python cannot read zstd; unpack it first (zstd -d)")
        yield from _walk_zip(path) if magic.startswith(_ZIP_MAGIC) else _walk_tar(path, magic)
    except (SourceError, MemoryError):
        raise
    except Exception as error:  # Many types again, e.g. IndexError for an empty name in a zip.
        raise SourceError(f"{path}: not an archive, or damaged or truncated: {error}") from error


def _walk_zip(path: Path) -> Iterator[Member]:
    with zipfile.ZipFile(path) as archive:
        if len(archive.infolist()) > MAX_MEMBERS:
            raise SourceError(f"{path}: oversized: more than {MAX_MEMBERS} files")
        for info in archive.infolist():
            if not info.is_dir():
                yield Member(_inside(info.filename, path), info.file_size, _zip_read(archive, info))


def _zip_read(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> Callable[[int], bytes]:
    def read(limit: int) -> bytes:
        with archive.open(info) as file:
            return file.read(limit)

    return read


def _walk_tar(path: Path, magic: bytes) -> Iterator[Member]:
    opener = next((open_ for key, open_ in _OPENERS.items() if magic.startswith(key)), None)
    with cast(IO[bytes], opener(path) if opener else path.open("rb")) as file:
        bounded = _Bounded(file, path)
        with tarfile.open(fileobj=cast(IO[bytes], bounded), mode="r:") as archive:
            for info in archive:
                if info.isdir():
                    continue
                name = _inside(info.name, path)
                if not info.isreg():
                    raise SourceError(f"{path}: {name} is a link or device, not a file")
                yield Member(name, info.size, _tar_read(archive, info))
                archive.members.clear()  # type: ignore[attr-defined]
        if not bounded.last:
            raise SourceError(f"{path}: truncated: the end of the archive is missing")
        bounded.drain()  # Reads to the end, where a compressed file has its checksum.


def _tar_read(archive: tarfile.TarFile, info: tarfile.TarInfo) -> Callable[[int], bytes]:
    def read(limit: int) -> bytes:
        file = archive.extractfile(info)
        if file is None:
            raise SourceError(f"{info.name}: not a regular file")
        return file.read(limit)

    return read


def _inside(name: str, path: Path) -> str:
    parts = [part for part in name.replace("\\", "/").split("/") if part not in ("", ".")]
    if name.startswith(("/", "\\")) or ".." in parts or not parts:
        raise SourceError(f"{path}: holds {name!r}, a name that leads out of its folder")
    return "/".join(parts)


class _Bounded:
    """A forward-only view of a decompressed stream, with limits, for tarfile to read.

    The limits are needed since tarfile reads headers of any declared length into memory.
    """

    def __init__(self, file: IO[bytes], path: Path) -> None:
        self._file, self._path, self._position = file, path, 0
        self.last: Optional[bytes] = None

    def tell(self) -> int:
        return self._position

    def seek(self, position: int) -> int:
        if position < self._position:
            raise tarfile.ReadError("its members overlap")
        while self._position < position:
            if not self.read(min(1 << 20, position - self._position)):
                break
        return self._position

    def read(self, size: int) -> bytes:
        if not 0 <= size <= MAX_READ_BYTES or self._position > MAX_TOTAL_BYTES:
            raise SourceError(f"{self._path}: oversized: it unpacks to more than the bounds")
        self.last = self._file.read(size)
        self._position += len(self.last)
        return self.last

    def drain(self) -> None:
        while self.read(1 << 20):
            pass
