"""Reads the files of a tar, with any compression, one by one, in memory."""

import bz2
import contextlib
import gzip
import lzma
import re
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Optional, cast

from data_prep.errors import SourceError
from data_prep.sources import member
from data_prep.sources.member import Member

MAX_HEADER_BYTES = 1 << 16  # of the headers before one member

_OPENERS: dict[bytes, Callable[[Path], object]] = {
    b"\x1f\x8b": gzip.open,
    b"BZh": bz2.open,
    b"\xfd7zXZ": lzma.open,
    b"\x5d\x00\x00": lzma.open,
}
# A file's name has at most 255 bytes. In a longer number, tarfile's patterns search for a time that
# grows with the square of its length.
_LONG_NUMBER = re.compile(rb"\d{256}")


def walk(path: Path, magic: bytes, most_bytes: int) -> Iterator[Optional[Member]]:
    """Yields the files of a tar, and None for each folder in it.

    Args:
      path: path of the archive.
      magic: its first bytes.
      most_bytes: the bytes that it may unpack to.

    Raises:
      SourceError: the archive has a link, a device or a name that leads out of it, exceeds the
        bounds of headers or bytes, or lacks its end.
      Exception: of many types, if the archive is damaged.
    """
    opener = next((open_ for key, open_ in _OPENERS.items() if magic.startswith(key)), None)
    with cast(IO[bytes], opener(path) if opener else path.open("rb")) as file:
        bounded = _Bounded(file, path, most_bytes)
        with tarfile.open(fileobj=cast(IO[bytes], bounded), mode="r:") as archive:
            for info in archive:
                bounded.next_member()
                if info.isdir():
                    yield None
                else:
                    name = member.inside(info.name, path)
                    if not info.isreg():
                        raise SourceError(f"{path}: {name} is a link or device, not a file")
                    yield Member(name, info.size, _tar_read(archive, info, bounded))
                archive.members.clear()  # type: ignore[attr-defined]
        if not bounded.last:
            raise SourceError(f"{path}: truncated: the end of the archive is missing")
        bounded.drain()  # Reads to the end, where a compressed file has its checksum.


def _tar_read(
    archive: tarfile.TarFile, info: tarfile.TarInfo, bounded: "_Bounded"
) -> Callable[[int], bytes]:
    def read(limit: int) -> bytes:
        file = archive.extractfile(info)
        if file is None:
            raise SourceError(f"{info.name}: not a regular file")
        with bounded.content():
            return file.read(limit)

    return read


class _Bounded:
    """A forward-only view of a decompressed stream, with limits, for tarfile to read.

    The limits are needed since tarfile reads headers of any declared length and number into memory.

    Attributes:
      last: what was read last; empty at the end of the stream.
    """

    def __init__(self, file: IO[bytes], path: Path, most_bytes: int) -> None:
        self._file, self._path, self._position = file, path, 0
        self._most_bytes = most_bytes
        self._headers = 0
        self._in_content = False
        self.last: Optional[bytes] = None

    def tell(self) -> int:
        return self._position

    def seek(self, position: int) -> int:
        if position < self._position:
            raise tarfile.ReadError("its members overlap")
        while self._position < position:
            if not self._take(min(1 << 20, position - self._position)):
                break
        return self._position

    def read(self, size: int) -> bytes:
        """Reads a header, or content inside `content`."""
        if self._in_content:
            return self._take(size)
        self._headers += size
        if self._headers > MAX_HEADER_BYTES or size < 0:
            raise self._oversized()
        header = self._take(size)
        if _LONG_NUMBER.search(header):
            raise tarfile.ReadError("a number in a header has more than 255 digits")
        return header

    def next_member(self) -> None:
        """Begins to count the bytes of the next member's headers."""
        self._headers = 0

    @contextlib.contextmanager
    def content(self) -> Iterator[None]:
        """Marks what is read in this context as content, not as headers."""
        self._in_content = True
        try:
            yield
        finally:
            self._in_content = False

    def drain(self) -> None:
        while self._take(1 << 20):
            pass

    def _take(self, size: int) -> bytes:
        if not 0 <= size <= member.MAX_READ_BYTES or self._position > self._most_bytes:
            raise self._oversized()
        self.last = self._file.read(size)
        self._position += len(self.last)
        return self.last

    def _oversized(self) -> SourceError:
        return SourceError(f"{self._path}: oversized: it unpacks to more than the bounds")
