"""Reads the files of a zip, one by one, in memory."""

import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Optional, cast

from data_prep.sources import member
from data_prep.sources.member import Member

_ENTRY = b"PK\x01\x02"  # The beginning of each entry of a zip's directory.
_LONGEST_END = 1 << 17  # The end of a zip with its comment takes 64 kB at most.


def walk(path: Path) -> Iterator[Optional[Member]]:
    """Yields the files of a zip, and None for each folder in it.

    Raises:
      SourceError: the zip has too many entries, or a name that leads out of it.
      Exception: of many types, if the zip is damaged.
    """
    with path.open("rb") as file:
        archive = zipfile.ZipFile(cast(IO[bytes], _ZipBytes(file, path)))
        for info in archive.infolist():
            if info.is_dir():
                yield None
            else:
                name = member.inside(info.filename, path)
                yield Member(name, info.file_size, _zip_read(archive, info))


class _ZipBytes:
    """A file for zipfile to read, which refuses a directory with too many entries.

    zipfile reads the directory at once, and makes an object of each entry, whatever their number.
    """

    def __init__(self, file: IO[bytes], path: Path) -> None:
        self._file, self._path, self._size = file, path, path.stat().st_size
        self.seek, self.tell, self.seekable = file.seek, file.tell, file.seekable

    def read(self, size: int = -1) -> bytes:
        if size > member.MAX_READ_BYTES:
            raise member.too_many(self._path)
        # Without a size, zipfile reads the end of the file. Python reserves what is asked for.
        data = self._file.read(_LONGEST_END if size < 0 else min(size, self._size))
        if data.count(_ENTRY) > member.MAX_MEMBERS:
            raise member.too_many(self._path)
        return data


def _zip_read(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> Callable[[int], bytes]:
    def read(limit: int) -> bytes:
        with archive.open(info) as file:
            return file.read(limit)

    return read
