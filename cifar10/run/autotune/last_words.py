"""What a process that failed said last."""

from typing import IO, Optional


def last_words(errors: IO[bytes], code: Optional[int]) -> str:
    """The signal that ended a process, or the last line of its standard error, or its exit code.

    Args:
      errors: the file that is its standard error.
      code: its exit code.
    """
    if code is not None and code < 0:
        return f"ended by signal {-code}"
    errors.seek(0)
    lines = errors.read().decode(errors="replace").splitlines()
    said = [line.strip() for line in lines if line.strip()]
    return said[-1] if said else f"ended with exit code {code}, without a word"
