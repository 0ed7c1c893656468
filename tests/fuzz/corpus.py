"""The inputs that once broke a parser, a folder for each parser: each is a test from then on."""

import hashlib
from pathlib import Path

FOLDER = Path(__file__).parent / "corpus"


def inputs(parser: str) -> list[Path]:
    """Returns the files of a parser."""
    return sorted((FOLDER / parser).glob("*")) if (FOLDER / parser).is_dir() else []


def keep(parser: str, data: bytes) -> Path:
    """Stores an input; returns its path."""
    folder = FOLDER / parser
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / hashlib.sha256(data).hexdigest()[:12]
    path.write_bytes(data)
    return path
