"""Reads and writes small files by tf.io.gfile; a file is replaced by renaming."""

import json
import math
from typing import Any

import tensorflow.compat.v1 as tf

from cifar10.errors import UserError


def write_text(path: str, text: str) -> None:
    """Writes a file under a temporary name, then renames it to `path`."""
    part = f"{path}.part"
    with tf.io.gfile.GFile(part, "w") as file:
        file.write(text)
    tf.io.gfile.rename(part, path, overwrite=True)


def write_json(path: str, value: Any) -> None:
    """Writes `value` as standard JSON; NaN and infinite numbers become null."""
    write_text(path, json.dumps(_finite(value), indent=2, allow_nan=False) + "\n")


def read_json(path: str) -> Any:
    """Reads a JSON file.

    Raises:
      UserError: the content is not JSON.
    """
    try:
        with tf.io.gfile.GFile(path) as file:
            return json.load(file)
    except ValueError as error:
        raise UserError(f"{path} is damaged ({error}); move it away or mend it") from error


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(entry) for entry in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
