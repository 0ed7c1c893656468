"""Checkpoints: the latest one, the best one by validation accuracy, and whether one is sound."""

import contextlib
import dataclasses
import posixpath
import re
import secrets
from collections.abc import Sequence
from typing import Any, Callable, Optional, TypedDict, TypeVar

import numpy as np
import tensorflow.compat.v1 as tf

from cifar10.config.train_config import TrainConfig, TrainingPosition
from cifar10.errors import DamagedError, UserError
from cifar10.host import files
from cifar10.output.folders import BEST_DIR
from cifar10.output.run_file import is_a

_BEST_NAME = "best.json"
_Read = TypeVar("_Read")
_FILE = re.compile(r"model\.ckpt-(\d+)\.(index|data-\d+-of-\d+)")
STATE = "checkpoint"  # TensorFlow's file with the names of the checkpoints.


@dataclasses.dataclass(frozen=True)
class Best:
    """The best checkpoint so far, with its global step and its validation accuracy."""

    step: int
    accuracy: float
    path: str  # The checkpoint's prefix: the path without the endings of its files.


class _BestRecord(TypedDict):
    step: int
    accuracy: float
    name: str


def latest(output_dir: str) -> Optional[str]:
    """Returns the latest checkpoint; None if TensorFlow's file names none, or one elsewhere.

    TensorFlow would continue from one in another folder, and remove it when it has newer ones.

    Raises:
      tf.errors.PermissionDeniedError: the file may not be read.
    """
    try:
        with tf.io.gfile.GFile(tf.io.gfile.join(output_dir, STATE), "rb") as file:
            file.read(1)  # TensorFlow passes over a file that it may not read.
        state = tf.train.get_checkpoint_state(output_dir)
    except tf.errors.PermissionDeniedError:
        raise
    except (tf.errors.OpError, ValueError):  # ValueError: it is not UTF-8.
        return None
    if state is None or not state.model_checkpoint_path:
        return None
    own = files.real(output_dir)
    for name in (state.model_checkpoint_path, *state.all_model_checkpoint_paths):
        if "\0" in name or files.real(posixpath.dirname(name)) != own:
            return None
    found = str(state.model_checkpoint_path)
    return found if exists(found) else None


def write_names(output_dir: str, names: Sequence[str]) -> None:
    """Replaces the file that names the checkpoints in the folder; the last one is the latest."""
    # TensorFlow's own function keeps such names in an absolute folder alone.
    lines = [f'model_checkpoint_path: "{names[-1]}"']
    lines += [f'all_model_checkpoint_paths: "{name}"' for name in names]
    files.write_text(tf.io.gfile.join(output_dir, STATE), "\n".join(lines) + "\n")


def read_counter(checkpoint: Optional[str], name: str) -> int:
    """Reads an integer variable, such as `global_step`; returns 0 if `checkpoint` is None.

    Raises:
      DamagedError: the checkpoint is damaged.
      tf.errors.PermissionDeniedError: a file of it may not be read.
    """
    if checkpoint is None:
        return 0
    try:
        return int(tf.train.NewCheckpointReader(checkpoint).get_tensor(name))
    except (tf.errors.OpError, ValueError, IndexError) as error:
        fault_of(checkpoint)  # It raises what is no damage.
        way_out = "name another by --checkpoint, or train again, which goes back to a sound one"
        raise DamagedError(checkpoint, str(error).splitlines()[0], way_out) from error


def latest_step(output_dir: str) -> int:
    """Returns the global step of the latest checkpoint; 0 if there is none.

    Training in another process may remove that checkpoint meanwhile; then this reads the newer one.

    Raises:
      DamagedError: the checkpoint is damaged.
    """
    return _of_newest(lambda: latest(output_dir), lambda path: read_counter(path, "global_step"))


def read_position(checkpoint: Optional[str]) -> TrainingPosition:
    """Reads how far training had come at a checkpoint; None: it has not begun.

    Raises:
      DamagedError: the checkpoint is damaged.
    """
    step, seen = (read_counter(checkpoint, name) for name in ("global_step", "examples_seen"))
    return TrainingPosition(step, seen)


def latest_position(output_dir: str) -> TrainingPosition:
    """Returns how far training had come at the latest checkpoint; see `latest_step`."""
    return _of_newest(lambda: latest(output_dir), read_position)


def _of_newest(search: Callable[[], Any], use: Callable[[Any], _Read]) -> _Read:
    """Returns `use(search())`, with the next checkpoint if training replaces it meanwhile."""
    while True:
        found = search()
        try:
            return use(found)
        except (tf.errors.OpError, UserError, ValueError):
            if search() == found:
                raise


def best(output_dir: str) -> Optional[Best]:
    """Returns the best checkpoint so far; None if there is none.

    Raises:
      DamagedError: best.json is damaged.
    """
    path, before = tf.io.gfile.join(output_dir, BEST_DIR, _BEST_NAME), None
    while files.exists(path):
        record = files.read_json(path)
        if not is_a(record, _BestRecord) or not re.fullmatch(r"[A-Za-z0-9_.-]+", record["name"]):
            raise DamagedError(path, "it names no step, accuracy and checkpoint")
        found = tf.io.gfile.join(output_dir, BEST_DIR, record["name"])
        if exists(found):
            return Best(record["step"], record["accuracy"], found)
        if record == before:  # Somebody has deleted it.
            break
        before = record  # A better one may have replaced it meanwhile.
    return None


def keep_if_best(output_dir: str, checkpoint: str, step: int, accuracy: float) -> bool:
    """Copies `checkpoint` to best/ if its accuracy is above the best so far.

    The files get their names when they are complete, then best.json names them, and then the ones
    before are removed. So what best.json names is whole at each moment, whatever is killed, and
    also while a chief and an evaluator both do this.

    Returns:
      Whether `checkpoint` is the best.

    Raises:
      tf.errors.NotFoundError: `checkpoint` was removed meanwhile; the best one is unchanged.
    """
    before = best(output_dir)
    if before is not None and accuracy <= before.accuracy:
        return False
    folder = tf.io.gfile.join(output_dir, BEST_DIR)
    tf.io.gfile.makedirs(folder)
    # Exactly such names: a process that was killed may have left files with further endings.
    data = tf.io.gfile.glob(f"{checkpoint}.data-?????-of-?????")
    if not data:
        raise tf.errors.NotFoundError(None, None, f"{checkpoint} has no data file any more")
    token, copies = secrets.token_hex(4), {}
    try:
        for path in (*data, f"{checkpoint}.index"):  # The index last.
            ending = posixpath.basename(path)[len(posixpath.basename(checkpoint)) :]
            copies[ending] = tf.io.gfile.join(folder, f"copy{ending}.{token}.part")
            tf.io.gfile.copy(path, copies[ending])
            files.sync(copies[ending])
        with files.locked(folder):
            before, name = best(output_dir), f"model.ckpt-{step}"
            if before is not None and accuracy <= before.accuracy:
                return False  # Another process was better meanwhile.
            if before is not None and posixpath.basename(before.path) == name:
                name += "-again"  # A run that resumed earlier has reached this step again.
            for ending, copy in copies.items():
                tf.io.gfile.rename(copy, tf.io.gfile.join(folder, name + ending), overwrite=True)
            record = _BestRecord(step=step, accuracy=accuracy, name=name)
            files.write_json(tf.io.gfile.join(folder, _BEST_NAME), record)
            for old in tf.io.gfile.glob(f"{before.path}.*") if before else ():
                # Without locks, another process may have removed it.
                with contextlib.suppress(tf.errors.NotFoundError):
                    tf.io.gfile.remove(old)
            return True
    finally:
        for copy in copies.values():
            with contextlib.suppress(tf.errors.NotFoundError):
                tf.io.gfile.remove(copy)


def exists(checkpoint: str) -> bool:
    """Returns whether the checkpoint exists.

    Its index is the file that is written last and removed first.
    """
    # tf.train.checkpoint_exists accepts any file as a checkpoint, for example model.ckpt-10.index.
    return files.exists(f"{checkpoint}.index")


def with_found(config: TrainConfig, use: Callable[[str], _Read]) -> _Read:
    """Returns `use(find(config))`.

    If that fails and training has replaced the checkpoint meanwhile, the new one is used.

    Raises:
      UserError: there is no checkpoint.
    """
    return _of_newest(lambda: find(config), use)


def find(config: TrainConfig) -> str:
    """Returns the checkpoint to evaluate, predict with or export.

    That is the one of --checkpoint, if given, or else the best of --output-dir, or else its newest.

    Raises:
      UserError: there is no such checkpoint.
    """
    given = config.checkpoint_path
    if given is not None and not exists(given):
        way_out = "name it without the ending, for example output/model.ckpt-80000"
        raise UserError(f"--checkpoint {given} does not exist; {way_out}")
    found = given or best_or_newest(config.output_path)
    if found is None:
        fault = f"no checkpoint in {config.output_path}{files.dangling_link(config.output_path)}"
        raise UserError(f"{fault}; train first, or name another folder by --output-dir")
    return found


def best_or_newest(output_dir: str) -> Optional[str]:
    """Returns the best checkpoint in a folder, or else the newest one; None if it has none.

    In a folder that was moved, TensorFlow's file may name checkpoints where they were.
    """
    if kept := best(output_dir):
        return kept.path
    paths = (tf.io.gfile.join(output_dir, f"model.ckpt-{step}") for step in steps(output_dir)[::-1])
    return latest(output_dir) or next((str(path) for path in paths if exists(path)), None)


def steps(output_dir: str) -> list[int]:
    """Returns the global steps of the checkpoints whose files are in a folder, ascending."""
    names = tf.io.gfile.listdir(output_dir) if tf.io.gfile.isdir(output_dir) else []
    return sorted({int(match[1]) for match in map(_FILE.fullmatch, names) if match})


def fault_of(checkpoint: str) -> Optional[str]:
    """Returns what is wrong with a checkpoint; None if nothing is.

    TensorFlow verifies the checksum (CRC-32C) of each tensor that it reads, so this reads them all.

    Args:
      checkpoint: the checkpoint's prefix, the path without the endings of its files.

    Raises:
      tf.errors.PermissionDeniedError: a file of it may not be read; it may be sound.
    """
    for ending, name in ((".index", "index"), (".data-*", "data")):
        paths = tf.io.gfile.glob(checkpoint + ending)
        if not paths:
            return f"its {name} file is gone"
        for path in paths:
            with tf.io.gfile.GFile(path, "rb") as file:
                file.read(1)
    try:
        reader = tf.train.NewCheckpointReader(checkpoint)
        for name in reader.get_variable_to_shape_map():
            value = np.asarray(reader.get_tensor(name))  # A text alone is bytes, not an array.
            # bfloat16 and the like are of kind V; NumPy converts them.
            if value.dtype.kind in "fV" and not np.isfinite(value.astype(np.float64)).all():
                return f"{name} is NaN or infinite"
    except (tf.errors.OpError, ValueError, IndexError, RuntimeError) as error:
        return str(error).splitlines()[0]
    return None
