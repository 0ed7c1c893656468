"""The archives that https://www.cs.toronto.edu/~kriz/cifar.html publishes."""

from dataclasses import dataclass

from data_prep.sources.batches import BINARY, PYTHON


@dataclass(frozen=True)
class Archive:
    """A published archive.

    Attributes:
      kind: kind of source, as in the manifest.
      url: address of the file.
      bytes: size of the file in bytes.
      sha256: SHA-256 of the file, in hex.
    """

    kind: str
    url: str
    bytes: int
    sha256: str

    @property
    def name(self) -> str:
        """The name of the file."""
        return self.url.rsplit("/", 1)[1]


ARCHIVES = {
    "python": Archive(
        PYTHON.kind,
        "https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz",
        170_498_071,
        "6d958be074577803d12ecdefd02955f39262c83c16fe9348329d7fe0b5c001ce",
    ),
    "binary": Archive(
        BINARY.kind,
        "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
        170_052_171,
        "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
    ),
}
