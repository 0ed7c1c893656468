"""Reads the published batches' pickles, and those saved again by Python 3, without trusting them.

A pickle is a program for a machine with a stack, and `pickle.load` of an untrusted file can run any
code. Here, only the instructions are carried out that make numbers, strings, lists, tuples and
dictionaries, and the names by which numpy rebuilds its arrays are admitted. None of these is
called, but kept with its arguments, from which `_array` makes an array.

A few bytes of a pickle can also ask for much memory or time. So instructions are counted, and keys
must be strings: hashing a tuple that holds another one twice, which holds another one twice, and so
on, takes twice as long with each. Python's own machine, unlike that in C, keeps what is numbered in
a dictionary, so that a large number takes no memory.
"""

import io
import pickle
import pickletools
import re
from collections.abc import Sequence
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

_KNOWN = re.compile(
    "PROTO|FRAME|STOP|MARK|NONE|NEWTRUE|NEWFALSE|INT|BININT[12]?|LONG[14]?|(BIN)?FLOAT|.*BYTES8?"
    "|BYTEARRAY8|.*UNICODE8?|(SHORT_)?(BIN)?STRING|(LONG_)?(BIN)?(GET|PUT)|MEMOIZE|(EMPTY_)?LIST"
    "|APPENDS?|(EMPTY_)?TUPLE[123]?|(EMPTY_)?DICT|SETITEMS?|(STACK_)?GLOBAL|REDUCE|BUILD"
)
_ADMITTED = re.compile(
    r"numpy\.(core|_core)\.(multiarray (_reconstruct|scalar)|numeric _frombuffer)"
    r"|numpy (ndarray|dtype)|_codecs encode"  # Python 3 writes bytes as encoded text at times.
)


@dataclass(eq=False)
class _Call:
    """What numpy's array, type or number would be made of."""

    function: str
    arguments: Any = None
    state: Any = None

    def __setstate__(self, state: Any) -> None:
        self.state = state


class _Entries(dict[Any, Any]):
    """A dictionary whose keys are strings; Python 2 has byte strings."""

    def __setitem__(self, key: Any, value: Any) -> None:
        if type(key) not in (str, bytes):
            raise pickle.UnpicklingError(f"a key must be a string, got type {type(key).__name__}")
        super().__setitem__(key.decode("latin-1") if isinstance(key, bytes) else key, value)


def _push_entries(machine: Any, items: Sequence[Any] = ()) -> None:
    machine.append(_Entries())
    for key, value in zip(items[::2], items[1::2]):
        machine.stack[-1][key] = value


def _push_marked_entries(machine: Any) -> None:
    _push_entries(machine, machine.pop_mark())


def _push_call(machine: Any) -> None:
    arguments = machine.stack.pop()
    machine.append(_Call(machine.stack.pop().function, arguments))


class _Machine(pickle._Unpickler):
    dispatch = {
        **pickle._Unpickler.dispatch,
        pickle.EMPTY_DICT[0]: _push_entries,
        pickle.DICT[0]: _push_marked_entries,
        pickle.REDUCE[0]: _push_call,
    }

    def find_class(self, module: str, name: str) -> _Call:
        if not _ADMITTED.fullmatch(f"{module} {name}"):
            raise pickle.UnpicklingError(
                f"it asks for {module}.{name}, which the published files do not contain"
            )
        return _Call(f"{module} {name}")


def load(data: bytes, name: str) -> dict[str, Any]:
    """Returns the dictionary that `data` holds; `pixels` and `numbers` convert its arrays.

    Args:
      data: content of a file.
      name: name of the file, for error messages.

    Raises:
      SourceError: the pickle is damaged, is not a dictionary, or needs more than a batch does.
    """
    try:
        for count, (instruction, _, _) in enumerate(pickletools.genops(data)):
            if count >= _MOST_INSTRUCTIONS:
                raise ValueError(f"it has more than {_MOST_INSTRUCTIONS:,} instructions")
            if not _KNOWN.fullmatch(instruction.name):
                raise ValueError(f"it has the instruction {instruction.name}, which no batch needs")
        value = _Machine(io.BytesIO(data), encoding="bytes").load()
        if not isinstance(value, dict):
            raise pickle.UnpicklingError(f"it holds a {type(value).__name__}, not a dictionary")
    except MemoryError:
        raise
    except Exception as error:  # A damaged pickle can raise almost any exception.
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        raise SourceError(f"{name}: not a readable CIFAR batch: {reason}") from error
    return value


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
