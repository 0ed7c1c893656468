"""Reads the published archive's pickles without trusting them.

`pickle.load` of an untrusted file can run any code. The published batches name three globals, all
to rebuild one uint8 array. This module maps these three names to stand-ins that only record their
arguments, so neither numpy nor anything else is called; it refuses every other name.

A few bytes of a pickle can also ask for much memory or time. So the instructions are read first,
without carrying them out, and those that exceed what the published files need are refused.
"""

import io
import pickle
import pickletools
import reprlib
from typing import Any, NoReturn

import numpy as np

from cifar10 import schema
from data_prep.errors import SourceError
from data_prep.sources.dataset import Pixels

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


class _Dtype:
    """Stands in for numpy.dtype: keeps the type code and ignores the state."""

    def __init__(self, code: Any, *_: Any) -> None:
        self.code = code

    def __setstate__(self, state: Any) -> None:
        """Ignores byte order and alignment, which have no meaning for single bytes."""


class _Array:
    """Stands in for numpy.ndarray: keeps the pickled state, which `pixels` checks."""

    def __init__(self) -> None:
        self.state: Any = None

    def __setstate__(self, state: Any) -> None:
        self.state = state


def _reconstruct(*_: Any) -> _Array:
    return _Array()


_ADMITTED = {
    ("numpy.core.multiarray", "_reconstruct"): _reconstruct,
    ("numpy", "ndarray"): _Array,
    ("numpy", "dtype"): _Dtype,
}


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        try:
            return _ADMITTED[module, name]
        except KeyError:
            raise pickle.UnpicklingError(
                f"it asks for {module}.{name}, which the published files do not contain"
            ) from None

    def persistent_load(self, pid: Any) -> NoReturn:
        raise pickle.UnpicklingError("it refers to objects outside the file")


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
    except MemoryError:
        raise
    except Exception as error:  # A damaged pickle can raise almost any exception.
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        raise SourceError(f"{name}: not a readable CIFAR-10 batch: {reason}") from error
    if not isinstance(value, dict):
        raise SourceError(
            f"{name}: must hold a dictionary, as the published batches do, "
            f"holds a {type(value).__name__}"
        )
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
        if count >= _MOST_INSTRUCTIONS:
            raise pickle.UnpicklingError(f"it has more than {_MOST_INSTRUCTIONS:,} instructions")
        if tuples > _MOST_TUPLES:
            raise pickle.UnpicklingError(f"it has more than {_MOST_TUPLES} tuples")
        if instruction.name in _NUMBERS and int(argument or 0) > _HIGHEST_NUMBER:
            raise pickle.UnpicklingError(f"it numbers an object {argument:,}")


def pixels(value: Any, name: str) -> Pixels:
    """Converts an array of `load` to uint8 [n, 3072] without copying its bytes.

    Args:
      value: an entry of the dictionary that `load` returned.
      name: name of the file, for error messages.

    Raises:
      SourceError: the value is not an array, or its type, shape or number of bytes is wrong.
    """
    state = value.state if isinstance(value, _Array) else None
    if not (isinstance(state, tuple) and len(state) == 5):
        raise SourceError(f"{name}: data must be a numpy array, is a {type(value).__name__}")
    _, shape, dtype, fortran, content = state
    code = getattr(dtype, "code", None)
    if code not in (b"u1", "u1") or fortran is not False:
        raise SourceError(f"{name}: data must be uint8 in C order, is {reprlib.repr(code)}")
    rows = shape[0] if isinstance(shape, tuple) and len(shape) == 2 else None
    if not isinstance(rows, int) or rows < 1 or shape[1] != schema.IMAGE_BYTES:
        raise SourceError(
            f"{name}: data must have the shape (images, {schema.IMAGE_BYTES}), "
            f"has {reprlib.repr(shape)}"
        )
    if not isinstance(content, bytes) or len(content) != rows * schema.IMAGE_BYTES:
        held = len(content) if isinstance(content, bytes) else type(content).__name__
        raise SourceError(
            f"{name}: {rows} images need {rows * schema.IMAGE_BYTES} bytes, the file holds {held}"
        )
    return np.frombuffer(content, np.uint8).reshape(rows, schema.IMAGE_BYTES)
