"""Reads fields of JSON that kubectl prints, whatever its shape is.

A missing field, or one of another type, is read as an empty one. Texts are short and printable as
UTF-8, since they reach the terminal and the status file.
"""

import json
from typing import Any, Union

from launch.errors import HostError

_LONGEST = 2000  # characters of a text


class UnreadableError(HostError):
    """What kubectl printed cannot be read."""


def parsed(text: Union[str, bytes], what: str) -> Any:
    """Returns the value of a JSON text.

    Args:
      text: the JSON text.
      what: the command that printed it, for the error.

    Raises:
      UnreadableError: it is not JSON.
    """
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        shown = text[:60] if isinstance(text, str) else text[:60].decode(errors="replace")
        raise UnreadableError(f"{what} printed {shown!r}, which is not JSON") from None


def mapping(found: Any, *keys: str) -> dict[str, Any]:
    """Returns the object at the place `keys` of `found`; {} if there is none."""
    value = _at(found, keys)
    return value if isinstance(value, dict) else {}


def sequence(found: Any, *keys: str) -> list[Any]:
    """Returns the list at the place `keys` of `found`; [] if there is none."""
    value = _at(found, keys)
    return value if isinstance(value, list) else []


def text(found: Any, *keys: str) -> str:
    """Returns the text at the place `keys` of `found`, in one line; "" if there is none."""
    value = _at(found, keys)
    if not isinstance(value, str):
        return ""
    return " ".join(value[:_LONGEST].encode(errors="replace").decode().split())


def _at(found: Any, keys: tuple[str, ...]) -> Any:
    for key in keys:
        if not isinstance(found, dict):
            return None
        found = found.get(key)
    return found
