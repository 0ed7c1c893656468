"""One file of a source, and the bounds of what is read of a source.

Nothing is extracted, so no archive can write files. Names that lead out of the archive are refused
nevertheless, since no published file has one. Sizes are known in advance, every read is bounded,
and so is the number of members, folders included. So a small archive can neither unpack into an
unlimited amount of data nor keep the reader busy without end.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from data_prep.errors import SourceError

# The published archives unpack to 185 MB, and the 350,000 images of Kaggle, most of them without
# labels, take 0.9 GB as PNG files.
MAX_TOTAL_BYTES = 2 << 30
MAX_RESIZED_TOTAL_BYTES = 1 << 38  # of 400,000 images that are resized: 0.7 MB each
MAX_READ_BYTES = 64 << 20
MAX_MEMBERS = 400_000  # Files, folders, links and others together.


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

    @property
    def is_hidden(self) -> bool:
        """Whether this is a hidden file, or in a folder that operating systems leave behind."""
        return any(map(is_hidden, self.parts))

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


def is_hidden(part: str) -> bool:
    """Tells whether a component of a name is that of a hidden file, or of what systems leave."""
    return part.startswith(".") or part == "__MACOSX"


def inside(name: str, path: Path) -> str:
    """Returns the name of a member of the archive at `path`, with forward slashes.

    Raises:
      SourceError: the name leads out of the archive.
    """
    parts = [part for part in name.replace("\\", "/").split("/") if part not in ("", ".")]
    if name.startswith(("/", "\\")) or ".." in parts or not parts:
        raise SourceError(f"{path}: holds {name[:300]!r}, a name that leads out of its folder")
    return "/".join(parts)


def too_many(path: Path) -> SourceError:
    """Returns the error for a source with more than MAX_MEMBERS members."""
    return SourceError(
        f"{path}: oversized: more than {MAX_MEMBERS:,} files and folders; the published archives "
        "have 8, and an image tree some 60,000: give one of those"
    )
