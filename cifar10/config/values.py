"""Reads the values of settings from text, the same on the command line and in files."""

import argparse
from collections.abc import Collection

TRUE, FALSE = ("true", "t", "yes", "y", "1"), ("false", "f", "no", "n", "0")


def parse_bool(text: str) -> bool:
    """Returns the value of a boolean setting.

    Raises:
      ArgumentTypeError: the text is no spelling of true or false.
    """
    if text.lower() in TRUE:
        return True
    if text.lower() in FALSE:
        return False
    raise argparse.ArgumentTypeError(f"must be true or false, got {text!r}")


def nearest(word: str, known: Collection[str]) -> str:
    """Returns `; did you mean ...?` with the most similar known word; "" if none is similar."""
    import difflib  # Imported here, since only mistakes need it.

    near = difflib.get_close_matches(word[:100], known, n=1)
    return f"; did you mean {near[0]}?" if near else ""
