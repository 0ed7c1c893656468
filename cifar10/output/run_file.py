"""run.json: what an output folder knows of its run: its model, owner and state.

The run's master alone writes it, whole and by renaming, so that every other task and every later
start reads all of it or none. Earlier versions wrote a file for each of these; `read` still takes
them, and a run that goes on writes run.json instead.
"""

import contextlib
import dataclasses
import os
import secrets
import socket
import typing
from collections.abc import Iterable
from typing import Any, Optional, TypedDict

import tensorflow.compat.v1 as tf

from cifar10.errors import DamagedError
from cifar10.host import files
from cifar10.host.files import read_json, write_json
from cifar10.schema import CLASS_NAMES, RESIZES

NAME = "run.json"
# The files of earlier versions, and the entry that each one is; "": it has entries itself.
EARLIER = {
    "model.json": "",
    "owner.json": "",
    "training.json": "training",
    "history.json": "history",
}


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
      history: the rows by split of a run that an earlier version began; see `metrics`.
    """

    settings: dict[str, Any] = dataclasses.field(default_factory=dict)
    class_names: list[str] = dataclasses.field(default_factory=lambda: list(CLASS_NAMES))
    resize: Optional[str] = None
    owner: Optional[str] = None
    training: Optional[Training] = None
    history: Optional[dict[str, list[dict[str, Optional[float]]]]] = None


_KINDS = typing.get_type_hints(Run)


def read(output_dir: str) -> Run:
    """Reads run.json, or else the files of an earlier version; without any, all is unknown.

    Raises:
      DamagedError: a file has not what training writes.
    """
    path = str(tf.io.gfile.join(output_dir, NAME))
    with contextlib.suppress(tf.errors.NotFoundError):  # A new run may rename it meanwhile.
        if files.exists(path):
            return Run(**_checked(path, read_json(path), needed=_KINDS))
    found: dict[str, Any] = {}
    for name, entry in EARLIER.items():
        path = str(tf.io.gfile.join(output_dir, name))
        if files.exists(path):
            content = {entry: read_json(path)} if entry else read_json(path)
            needed = ("settings", "class_names") if name == "model.json" else ()
            found.update(_checked(path, content, needed))
    return Run(**found)


def update(output_dir: str, **entries: Any) -> None:
    """Writes run.json with new values of some entries, and the others as they are."""
    write(output_dir, dataclasses.replace(read(output_dir), **entries))


def write(output_dir: str, run: Run) -> None:
    """Writes run.json."""
    write_json(str(tf.io.gfile.join(output_dir, NAME)), vars(run))


def write_training(
    output_dir: str, validates: bool, ended_at: Optional[int] = None, status: str = ""
) -> None:
    """Notes the state of training, whose rows are in metrics.jsonl by now.

    Args:
      output_dir: path of the output folder.
      validates: whether the master validates its checkpoints itself.
      ended_at: last global step if training is over; None: training continues.
      status: text that says how training ended.
    """
    note = Training(master_validates=validates, ended_at_step=ended_at, status=status)
    update(output_dir, training=note, history=None)


def read_or_make_owner(output_dir: str) -> str:
    """Returns the run's owner; a master that is started again finds it, and so remains the same."""
    owner = read(output_dir).owner
    if owner is None:
        owner = secrets.token_hex(16)
        update(output_dir, owner=owner)
    return owner


def place(output_dir: str) -> str:
    """Returns `HOST:FOLDER`, for messages of other tasks; a folder with a scheme has no host."""
    if "://" in output_dir:
        return output_dir
    return f"{socket.gethostname()}:{os.path.abspath(output_dir)}"


def is_a(value: Any, kind: Any) -> bool:
    """Returns whether a value from a JSON file has a type: a class, Optional, list, dict or Any.

    An integer is a float, too, but True is no integer.
    """
    origin, parts = typing.get_origin(kind), typing.get_args(kind)
    if kind is Any:
        return True
    if origin is typing.Union:
        return any(is_a(value, part) for part in parts)
    if origin is list:
        return isinstance(value, list) and all(is_a(one, parts[0]) for one in value)
    if origin is dict:
        return isinstance(value, dict) and all(is_a(one, parts[1]) for one in value.values())
    if hasattr(kind, "__required_keys__"):  # a TypedDict
        return (
            isinstance(value, dict)
            and value.keys() >= kind.__required_keys__
            and all(is_a(value[name], part) for name, part in typing.get_type_hints(kind).items())
        )
    return type(value) is kind or (kind is float and type(value) is int)


def _checked(path: str, content: Any, needed: Iterable[str]) -> dict[str, Any]:
    """Returns the entries of a file; those that it needs are checked even if they are missing."""
    if not isinstance(content, dict):
        raise DamagedError(path, "it has no entries")
    found: dict[str, Any] = dict.fromkeys(needed)
    found.update((name, value) for name, value in content.items() if name in _KINDS)
    for name, value in found.items():
        if not is_a(value, _KINDS[name]):
            raise DamagedError(path, f"its {name} is not what training writes")
    if found.get("settings"):  # Those of earlier versions; `sync` had the same variables.
        found["settings"] = settings = {"lookahead_steps": 0, **found["settings"]}
        if settings.get("batch_norm") == "sync":
            settings["batch_norm"] = "tower"
    if not found.get("class_names", CLASS_NAMES):
        raise DamagedError(path, "it has no class names")
    if found.get("resize") not in (None, *RESIZES):
        raise DamagedError(path, "its resize is unknown")
    return found
