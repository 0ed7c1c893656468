"""owner.json: a random number by which the tasks of a cluster know the run of an output folder.

A master that is started again finds it, and so remains the owner of its parameter servers. Only a
run without a job token needs the file.
"""

import os
import secrets
import socket
from typing import Any, Optional

import tensorflow.compat.v1 as tf

from cifar10.errors import DamagedError
from cifar10.host import files
from cifar10.host.files import read_json, write_json

_NAME, _KEY, _BYTES = "owner.json", "owner", 16


def read(output_dir: str) -> Optional[str]:
    """Returns the number, in hexadecimal; None if there is no file.

    Raises:
      DamagedError: the file is damaged.
      UnreadableError: the file cannot be read.
    """
    path = _path(output_dir)
    if not files.exists(path):
        return None
    found: Any = read_json(path)
    number = found.get(_KEY) if isinstance(found, dict) else None
    if not isinstance(number, str):
        raise DamagedError(path, f"it has no {_KEY}")
    return number


def read_or_make(output_dir: str) -> str:
    """Returns the number as `read` does, and makes the file if there is none."""
    number = read(output_dir)
    if number is None:
        number = secrets.token_hex(_BYTES)
        write_json(_path(output_dir), {_KEY: number})
    return number


def place(output_dir: str) -> str:
    """Returns `HOST:FOLDER`, for messages of other tasks; a folder with a scheme has no host."""
    if "://" in output_dir:
        return output_dir
    return f"{socket.gethostname()}:{os.path.abspath(output_dir)}"


def _path(output_dir: str) -> str:
    return str(tf.io.gfile.join(output_dir, _NAME))
