"""run.json: what an output folder knows of its run: its model, owner and state.

The run's chief alone writes it, whole and by renaming, so that every other task and every later
start reads all of it or none.
"""

import contextlib
import dataclasses
import os
import secrets
import socket
import typing
from typing import Any, Optional, TypedDict

import tensorflow.compat.v1 as tf

from cifar10.errors import DamagedError, UserError
from cifar10.host import files
from cifar10.schema import CLASS_NAMES, RESIZES

NAME = "run.json"
# What another version wrote in its place; without it, such a folder would look like an empty one.
_OTHER_NAMES = ("model.json", "owner.json", "training.json", "history.json")


class Training(TypedDict):
    """The state of training, for processes that share only the output folder."""

    master_validates: bool  # Otherwise, a separate evaluator does.
    ended_at_step: Optional[int]  # the last global step; None: training goes on
    status: str  # how it ended, in words


@dataclasses.dataclass(frozen=True)
class Run:
    """The content of run.json, which is checked by these types.

    Attributes:
      settings: those that decide the checkpoints' variables; empty: no training has begun.
      class_names: the classes in the order of the labels.
      resize: how data_prep resized the images, one of RESIZES; None: it did not.
      owner: a random number in hexadecimal, by which the tasks of a cluster without a job token
        know the run; None: it has needed none.
      training: the state of training; None: it has not begun.
    """

    settings: dict[str, Any] = dataclasses.field(default_factory=dict)
    class_names: list[str] = dataclasses.field(default_factory=lambda: list(CLASS_NAMES))
    resize: Optional[str] = None
    owner: Optional[str] = None
    training: Optional[Training] = None


_KINDS = typing.get_type_hints(Run)


def read(output_dir: str) -> Run:
    """Reads run.json; without it, all is unknown.

    Raises:
      DamagedError: it does not have what training writes.
      UserError: another version of this program has written the folder.
    """
    path = str(tf.io.gfile.join(output_dir, NAME))
    with contextlib.suppress(tf.errors.NotFoundError):  # A new run may rename it meanwhile.
        if files.exists(path):
            return _checked(path, files.read_json(path))
    for name in _OTHER_NAMES:
        other = str(tf.io.gfile.join(output_dir, name))
        if files.exists(other):
            raise of_another_version(other, f"this one writes {NAME}")
    return Run()


def of_another_version(path: str, difference: str) -> UserError:
    """Returns the error about a file in a format that this version does not read."""
    fault = "is of another version of this program, which cannot be continued or used"
    way_out = "name another --output-dir, or take the version that wrote it"
    return UserError(f"{path} {fault} ({difference}); {way_out}")


def recorded_end(output_dir: str) -> Optional[int]:
    """Returns the last global step of training that is over; None: it goes on, or nobody knows.

    Raises:
      UserError: as `read` says.
    """
    with contextlib.suppress(tf.errors.PermissionDeniedError):
        if training := read(output_dir).training:
            return training["ended_at_step"]
    return None


def update(output_dir: str, **entries: Any) -> None:
    """Writes run.json with new values of some entries, and the others as they are."""
    write(output_dir, dataclasses.replace(read(output_dir), **entries))


def write(output_dir: str, run: Run) -> None:
    """Writes run.json."""
    files.write_json(str(tf.io.gfile.join(output_dir, NAME)), vars(run))


def write_training(
    output_dir: str, validates: bool, ended_at: Optional[int] = None, status: str = ""
) -> None:
    """Records the state of training, whose rows are in metrics.jsonl by now.

    Args:
      output_dir: path of the output folder.
      validates: whether the chief validates its checkpoints itself.
      ended_at: last global step if training is over; None: training continues.
      status: text that says how training ended.
    """
    state = Training(master_validates=validates, ended_at_step=ended_at, status=status)
    update(output_dir, training=state)


def read_or_make_owner(output_dir: str) -> str:
    """Returns the run's owner; a chief that is started again finds it, and so remains the same."""
    owner = read(output_dir).owner
    if owner is None:
        owner = secrets.token_hex(16)
        update(output_dir, owner=owner)
    return owner


def location(output_dir: str) -> str:
    """Returns `HOST:FOLDER`, for messages of other tasks; a folder with a scheme has no host."""
    if "://" in output_dir:
        return output_dir
    return f"{socket.gethostname()}:{os.path.abspath(output_dir)}"


def is_a(value: Any, kind: Any) -> bool:
    """Returns whether a value from a JSON file has a type: a class, Optional, list, dict or Any.

    An integer is a float, too, but True is no integer.
    """
    origin, parts = typing.get_origin(kind), typing.get_args(kind)
    if origin is typing.Union:
        return any(is_a(value, part) for part in parts)
    if origin is list:
        return isinstance(value, list) and all(is_a(item, parts[0]) for item in value)
    if origin is dict:
        return isinstance(value, dict) and all(is_a(item, parts[1]) for item in value.values())
    if hasattr(kind, "__required_keys__"):  # a TypedDict
        hints = typing.get_type_hints(kind)
        return is_a(value, dict) and all(is_a(value.get(name, ...), hints[name]) for name in hints)
    return kind is Any or type(value) is kind or (kind is float and type(value) is int)


def _checked(path: str, content: Any) -> Run:
    """Returns the content of a run.json, whose entries have the types of `Run`."""
    if not isinstance(content, dict):
        raise DamagedError(path, "it has no entries")
    missing = ", ".join(name for name in _KINDS if name not in content)
    # An entry of another version without a value says nothing.
    unknown = ", ".join(name for name in content if name not in _KINDS and content[name])
    if missing or unknown:
        words = f"it has no {missing}" if missing else f"it has {unknown}"
        raise of_another_version(path, words)
    found = {name: content[name] for name in _KINDS}
    for name, value in found.items():
        if not is_a(value, _KINDS[name]):
            raise DamagedError(path, f"its {name} is not what training writes")
    if not found["class_names"]:
        raise DamagedError(path, "it has no class names")
    if found["resize"] not in (None, *RESIZES):
        raise DamagedError(path, "its resize is unknown")
    return Run(**found)
