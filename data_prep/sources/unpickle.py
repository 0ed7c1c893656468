"""Reads the published batches' pickles, and those saved again by Python 3, without trusting them.

A pickle is a program for a machine with a stack, and `pickle.load` of an untrusted file can run any
code. Here, Python's unpickler finds only the names by which numpy rebuilds its arrays. It calls
none of these, but keeps them with their arguments, from which `_array` makes an array.

A few bytes of a pickle can also ask for much memory or time. So its instructions are looked through
first. They are counted, and those that hash are refused or replaced, since hashing a tuple that
holds another one twice, which holds another one twice, and so on, takes twice as long with each.
"""

import io
import pickle
import pickletools
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from cifar10 import schema
from data_prep.errors import SourceError
from data_prep.tfrecord.write import Pixels

# A batch of 10,000 images has 20,000 instructions, 60,000 with the names of its images, and 80,000
# more if its labels are numpy's integers. CIFAR-100's file has five times as many images.
_MOST_INSTRUCTIONS = 2_000_000

_ADMITTED = re.compile(
    r"numpy\.(core|_core)\.(multiarray (_reconstruct|scalar)|numeric _frombuffer)"
    r"|numpy (ndarray|dtype)|_codecs encode"  # Python 3 writes bytes as encoded text at times.
)
_REFUSED = re.compile("PERSID|BINPERSID|EXT.|NEWOBJ.*|OBJ|INST|EMPTY_SET|ADDITEMS|FROZENSET")
# In place of a dictionary, a list is made of None, and then keys and values in turn, or in pairs.
_REPLACED = {
    "EMPTY_DICT": pickle.EMPTY_LIST + pickle.NONE + pickle.APPEND,
    "DICT": pickle.LIST + pickle.NONE + pickle.APPEND,
    "SETITEMS": pickle.APPENDS,
    "SETITEM": pickle.TUPLE2 + pickle.APPEND,
    "FRAME": b"",  # the number of bytes that follow, which is another one now
}


@dataclass(eq=False)
class _Call:
    """What numpy's array, type or number would be made of."""

    function: str
    arguments: tuple[Any, ...]
    state: Any = None

    def __setstate__(self, state: Any) -> None:
        self.state = state


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Callable[..., _Call]:
        function = f"{module} {name}"
        if not _ADMITTED.fullmatch(function):
            what = f"{module}.{name}, which the published files do not contain"
            raise pickle.UnpicklingError(f"it asks for {what}")
        return lambda *arguments: _Call(function, arguments)


def load(data: bytes, name: str) -> dict[str, Any]:
    """Returns the dictionary that `data` holds; `pixels` and `numbers` convert its arrays.

    Args:
      data: content of a file.
      name: name of the file, for error messages.

    Raises:
      SourceError: the pickle is damaged, is not a dictionary, or needs more than a batch does.
    """
    try:
        value = _Unpickler(io.BytesIO(_without_hashes(data)), encoding="bytes").load()
        if not isinstance(value, list) or not value or value[0] is not None:
            raise pickle.UnpicklingError(f"it holds a {type(value).__name__}, not a dictionary")
        found, items = {}, iter(value[1:])
        for item in items:
            key, entry = item if isinstance(item, tuple) else (item, next(items))
            if not isinstance(key, (str, bytes)):
                kind = type(key).__name__
                raise pickle.UnpicklingError(f"a key must be a string, got type {kind}")
            found[key.decode("latin-1") if isinstance(key, bytes) else key] = entry
    except MemoryError:
        raise
    except Exception as error:  # A damaged pickle can raise almost any exception.
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        raise SourceError(f"{name}: not a readable CIFAR batch: {reason}") from error
    return found


def _without_hashes(data: bytes) -> bytes:
    """Returns a pickle of the same, but with a list in place of each dictionary."""
    parts, end = [], 0
    for count, (instruction, argument, start) in enumerate(pickletools.genops(data)):
        name = instruction.name
        if count >= _MOST_INSTRUCTIONS:
            raise pickle.UnpicklingError(f"it has more than {_MOST_INSTRUCTIONS:,} instructions")
        # The unpickler's table of numbered objects is as long as its largest number.
        if _REFUSED.fullmatch(name) or (name.endswith("PUT") and int(argument or 0) > count):
            raise pickle.UnpicklingError(f"it has the instruction {name}, which no batch needs")
        if name in _REPLACED:
            parts += [data[end:start], _REPLACED[name]]
            end = (start or 0) + (1 if argument is None else 9)  # A frame's length has eight bytes.
    return b"".join([*parts, data[end:]])


def pixels(value: Any, name: str) -> Pixels:
    """Converts an array of `load` to uint8 [n, 3072] without copying its bytes.

    Args:
      value: an entry of the dictionary that `load` returned.
      name: name of the file, for error messages.

    Raises:
      SourceError: the value is not an array, or its type, shape or number of bytes is wrong.
    """
    try:
        array = _array(value)
        got = f"{array.dtype} {array.shape}"
        if array.dtype == np.uint8 and array.size and array.shape[1:] == (schema.IMAGE_BYTES,):
            return np.ascontiguousarray(array)
    except ValueError as error:
        got = str(error)
    rule = "data must be a whole numpy array of uint8 with the shape"
    raise SourceError(f"{name}: {rule} (images, {schema.IMAGE_BYTES}), got {got}")


def numbers(value: Any, name: str) -> list[Any]:
    """Converts labels of `load`, a list or an array, to a list; its entries are to be checked.

    Raises:
      SourceError: the value is no list and no array of whole numbers of one dimension.
    """
    try:
        if isinstance(value, list):
            return [_array(e).tolist() if isinstance(e, _Call) else e for e in value]
        array = _array(value)
        if array.ndim != 1:
            raise ValueError(f"the shape {array.shape}")
        return list(array.tolist())
    except ValueError as error:
        rule = "labels must be a list or an array of whole numbers"
        raise SourceError(f"{name}: {rule}, got {error}") from error


def _array(value: Any) -> npt.NDArray[np.integer[Any]]:
    """Returns the array or number that a value stands for.

    Raises:
      ValueError: it stands for something else, which the message names.
    """
    if not isinstance(value, _Call):
        raise ValueError(f"type {type(value).__name__}")
    try:
        if value.function.endswith("_reconstruct"):
            _, shape, dtype, is_fortran, content = value.state
            order = "F" if is_fortran else "C"
        elif value.function.endswith("_frombuffer"):
            content, dtype, shape, order = value.arguments
        else:
            (dtype, content), shape, order = value.arguments, (), "C"
        code, byte_order = (
            part.decode() if isinstance(part, bytes) else part
            for part in (dtype.arguments[0], dtype.state[1])
        )
        if re.fullmatch("[iu][1248]", code):
            if isinstance(content, _Call):
                content = content.arguments[0].encode("latin-1")
            flat: npt.NDArray[Any] = np.frombuffer(content, byte_order + code)
            return flat.reshape(shape, order="C" if order == "C" else "F")
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        raise ValueError("an array that is not whole") from error
    raise ValueError(f"numpy's type {code!r}")
