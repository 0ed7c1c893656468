"""Reads the published archive's pickles without trusting them.

`pickle.load` of an untrusted file can run any code. The published batches name three globals, all
to rebuild one uint8 array. This module has a stand-in for these that only records its arguments, so
neither numpy nor anything else is called; it refuses every other name.

A few bytes of a pickle can also ask for much memory or time. So the instructions are read first,
without carrying them out, and those that exceed what the published files need are refused.
"""

import io
import pickle
import pickletools
from typing import Any

import numpy as np

from cifar10 import schema
from data_prep.errors import SourceError
from data_prep.tfrecord.write import Pixels

# A batch of 10,000 images has 20,000 instructions and 6 tuples. The published ones also have a name
# for each image, and number these objects, which is some 40,000 instructions more.
_MOST_INSTRUCTIONS = 2_000_000
_HIGHEST_NUMBER = 1_000_000
_MOST_TUPLES = 20
# Hashable containers. Hashing one that contains the one before twice, which contains the one before
# twice, and so on, takes twice as long with each.
_TUPLES = ("TUPLE", "TUPLE1", "TUPLE2", "TUPLE3", "FROZENSET")
# These write an entry of the table of numbered objects, which is as long as the highest number.
_NUMBERS = ("PUT", "BINPUT", "LONG_BINPUT")

_ADMITTED = (("numpy.core.multiarray", "_reconstruct"), ("numpy", "ndarray"), ("numpy", "dtype"))


class _StandIn:
    """Keeps what numpy's array or type would be made of, for `pixels`."""

    def __init__(self, *arguments: Any) -> None:
        self.arguments = arguments
        self.state: Any = None

    def __setstate__(self, state: Any) -> None:
        self.state = state


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _ADMITTED:
            raise pickle.UnpicklingError(
                f"it asks for {module}.{name}, which the published files do not contain"
            )
        return _StandIn


def load(data: bytes, name: str) -> dict[bytes, Any]:
    """Returns the dictionary that `data` holds; `pixels` converts the arrays in it.

    Args:
      data: content of a file.
      name: name of the file, for error messages.

    Raises:
      SourceError: the pickle is damaged, names another global, or is not a dictionary.
    """
    try:
        _refuse_excess(data)
        value = _Unpickler(io.BytesIO(data), encoding="bytes").load()
        if not isinstance(value, dict):
            raise pickle.UnpicklingError(f"it holds a {type(value).__name__}, not a dictionary")
    except MemoryError:
        raise
    except Exception as error:  # A damaged pickle can raise almost any exception.
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        raise SourceError(f"{name}: not a readable CIFAR-10 batch: {reason}") from error
    return value


def _refuse_excess(data: bytes) -> None:
    """Reads the instructions of a pickle without carrying them out.

    Raises:
      UnpicklingError: they would take more memory or time than a published file does.
      ValueError: the pickle is damaged.
    """
    tuples = 0
    for count, (instruction, argument, _) in enumerate(pickletools.genops(data)):
        tuples += instruction.name in _TUPLES
        number = int(argument or 0) if instruction.name in _NUMBERS else 0
        if count >= _MOST_INSTRUCTIONS or tuples > _MOST_TUPLES or number > _HIGHEST_NUMBER:
            raise pickle.UnpicklingError(
                f"it has more than {_MOST_INSTRUCTIONS:,} instructions or {_MOST_TUPLES} tuples, "
                f"or numbers an object {number:,}"
            )


def pixels(value: Any, name: str) -> Pixels:
    """Converts an array of `load` to uint8 [n, 3072] without copying its bytes.

    Args:
      value: an entry of the dictionary that `load` returned.
      name: name of the file, for error messages.

    Raises:
      SourceError: the value is not an array, or its type, shape or number of bytes is wrong.
    """
    try:
        _, shape, dtype, is_fortran, content = value.state
        if dtype.arguments[0] in (b"u1", "u1") and not is_fortran:
            rows, row_bytes = shape
            if row_bytes == schema.IMAGE_BYTES and len(content) == rows * row_bytes > 0:
                return np.frombuffer(content, np.uint8).reshape(rows, schema.IMAGE_BYTES)
    except (AttributeError, LookupError, TypeError, ValueError):
        pass  # It is no such array, either.
    raise SourceError(
        f"{name}: data must be a whole numpy array of uint8 in C order with the shape (images, "
        f"{schema.IMAGE_BYTES})"
    )
