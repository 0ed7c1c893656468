"""Masks the values of variables in what tasks write."""

import os
from collections.abc import Iterable

_SHORTEST = 6  # characters; shorter parts would mask much that is no secret
_MASK = "***"


class Mask:
    """Replaces values by `***`.

    Output comes line by line, so each line of a value, such as a key, is masked by itself: those of
    at least six characters, without the space around them.

    Args:
      values: the values to mask.

    Attributes:
      longest: the bytes of the longest part that is masked; 0 if there is none.
    """

    def __init__(self, values: Iterable[str]) -> None:
        lines = {line.strip() for value in values for line in value.split("\n")}
        # Longer ones first: a shorter one may be a part of a longer one.
        self._parts = sorted((line for line in lines if len(line) >= _SHORTEST), key=len)[::-1]
        self._encoded = [os.fsencode(part) for part in self._parts]
        self.longest = max(map(len, self._encoded), default=0)

    def text(self, text: str) -> str:
        """Returns text with the values masked."""
        for part in self._parts:
            text = text.replace(part, _MASK)
        return text

    def data(self, data: bytes) -> bytes:
        """Returns bytes of an output with the values masked."""
        for part in self._encoded:
            data = data.replace(part, _MASK.encode())
        return data
