"""Reads the published batches' pickles, and those saved again by Python 3, without trusting them.

A pickle is a program for a machine with a stack, and `pickle.load` of an untrusted file can run any
code. The machine of this module knows only the instructions that make numbers, strings, lists,
tuples and dictionaries, and the names by which numpy rebuilds its arrays. It calls none of these,
but keeps them with their arguments, from which `_array` makes an array.

A few bytes of a pickle can also ask for much memory or time. So instructions are counted, and keys
must be strings: hashing a tuple that holds another one twice, which holds another one twice, and so
on, takes twice as long with each.
"""

import pickle
import pickletools
import re
from dataclasses import dataclass
from typing import Any, Optional

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
_CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False, "EMPTY_TUPLE": ()}
_PUSHES = re.compile("INT|BININT[12]?|LONG[14]?|(BIN)?FLOAT|.*BYTES8?|BYTEARRAY8|.*UNICODE8?")
_BYTE_STRING = re.compile("(SHORT_)?(BIN)?STRING")  # of Python 2
_TUPLES = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}


@dataclass(eq=False)
class _Call:
    """What numpy's array, type or number would be made of."""

    function: str
    arguments: tuple[Any, ...]
    state: Any = None


def load(data: bytes, name: str) -> dict[str, Any]:
    """Returns the dictionary that `data` holds; `pixels` and `numbers` convert its arrays.

    Args:
      data: content of a file.
      name: name of the file, for error messages.

    Raises:
      SourceError: the pickle is damaged, is not a dictionary, or needs more than a batch does.
    """
    try:
        value = _run(data)
        if not isinstance(value, dict):
            raise pickle.UnpicklingError(f"it holds a {type(value).__name__}, not a dictionary")
    except MemoryError:
        raise
    except Exception as error:  # A damaged pickle can raise almost any exception.
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        raise SourceError(f"{name}: not a readable CIFAR batch: {reason}") from error
    return value


def _run(data: bytes) -> Any:
    """Carries out the instructions of a pickle; returns the object that it makes."""
    stack: list[Any] = []
    marks: list[int] = []  # lengths of the stack
    memo: dict[int, Any] = {}

    def take(count: Optional[int] = None) -> list[Any]:
        first = marks.pop() if count is None else len(stack) - count
        items = stack[first:]
        if first < 0 or len(stack) < first:
            raise pickle.UnpicklingError("its stack is empty")
        del stack[first:]
        return items

    for count, (instruction, argument, _) in enumerate(pickletools.genops(data)):
        name = instruction.name
        if count >= _MOST_INSTRUCTIONS:
            raise pickle.UnpicklingError(f"it has more than {_MOST_INSTRUCTIONS:,} instructions")
        if _PUSHES.fullmatch(name):
            stack.append(argument)
        elif _BYTE_STRING.fullmatch(name):
            stack.append(str(argument).encode("latin-1"))
        elif name in _CONSTANTS:
            stack.append(_CONSTANTS[name])
        elif name in ("GET", "BINGET", "LONG_BINGET"):
            stack.append(memo[int(argument or 0)])
        elif name in ("PUT", "BINPUT", "LONG_BINPUT"):
            memo[int(argument or 0)] = stack[-1]
        elif name == "MEMOIZE":
            memo[len(memo)] = stack[-1]
        elif name == "MARK":
            marks.append(len(stack))
        elif name in ("EMPTY_LIST", "LIST"):
            stack.append(take() if name == "LIST" else [])
        elif name in ("APPEND", "APPENDS"):
            items = take(1 if name == "APPEND" else None)
            _top(stack, list).extend(items)
        elif name in ("TUPLE", *_TUPLES):
            stack.append(tuple(take(_TUPLES.get(name))))
        elif name in ("EMPTY_DICT", "DICT"):
            stack.append(_entries(take()) if name == "DICT" else {})
        elif name in ("SETITEM", "SETITEMS"):
            items = take(2 if name == "SETITEM" else None)
            _top(stack, dict).update(_entries(items))
        elif name in ("GLOBAL", "STACK_GLOBAL"):
            words = [argument] if name == "GLOBAL" else take(2)
            function = " ".join(map(str, words))
            if not _ADMITTED.fullmatch(function):
                asked = ".".join(function.split())
                raise pickle.UnpicklingError(
                    f"it asks for {asked}, which the published files do not contain"
                )
            stack.append(function)
        elif name == "REDUCE":
            function, arguments = take(2)
            stack.append(_Call(function, arguments))
        elif name == "BUILD":
            (state,) = take(1)
            _top(stack, _Call).state = state
        elif name == "STOP":
            return stack.pop()
        elif name not in ("PROTO", "FRAME"):
            raise pickle.UnpicklingError(f"it has the instruction {name}, which no batch needs")
    return None  # Unreachable: genops raises an error at an end without STOP.


def _top(stack: list[Any], kind: type) -> Any:
    if type(stack[-1]) is not kind:
        raise pickle.UnpicklingError(f"it adds to type {type(stack[-1]).__name__}")
    return stack[-1]


def _entries(items: list[Any]) -> dict[str, Any]:
    """Returns a dictionary of keys and values in turn; Python 2 has byte strings as keys."""
    entries = {}
    for key, value in zip(items[::2], items[1::2]):
        if type(key) not in (str, bytes):
            raise pickle.UnpicklingError(f"a key must be a string, got type {type(key).__name__}")
        entries[key.decode("latin-1") if isinstance(key, bytes) else key] = value
    return entries


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
    raise SourceError(
        f"{name}: data must be a whole numpy array of uint8 with the shape (images, "
        f"{schema.IMAGE_BYTES}), got {got}"
    )


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
        is_whole = re.fullmatch("[iu][1248]", code)
        if is_whole and isinstance(content, _Call):
            content = content.arguments[0].encode("latin-1")
        if is_whole:
            flat: npt.NDArray[Any] = np.frombuffer(content, byte_order + code)
            return flat.reshape(shape, order="C" if order == "C" else "F")
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        raise ValueError("an array that is not whole") from error
    raise ValueError(f"numpy's type {code!r}")
