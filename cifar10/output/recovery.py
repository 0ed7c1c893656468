"""What a run continues from when files of its output folder are damaged, lost or of an older run.

Nothing is removed: what is unfit is renamed, and a line says so.
"""

import contextlib
import posixpath
import re
from collections.abc import Sequence
from typing import Callable, Optional

import tensorflow.compat.v1 as tf

from cifar10.errors import DamagedError, UserError
from cifar10.output import checkpoints
from cifar10.output.folders import BEST_DIR, EXPORT_DIR, PART

# A part of an evaluator's file may be about to get its name.
_UNFINISHED = re.compile(
    r"model\.ckpt-\d+.*\.tempstate\d+|checkpoint\.tmp[0-9a-f]+|(?!.*evaluator).+\.[0-9a-f]{8}\.part"
)


def checkpoint_to_continue(output_dir: str, log: Callable[[str], None]) -> Optional[str]:
    """Returns the newest sound checkpoint, and makes it the one that TensorFlow restores.

    That is the latest one, unless it is damaged or TensorFlow's file names none or one of another
    folder; then it is the sound one with the highest step.

    Args:
      output_dir: path of the output folder.
      log: function that prints a line.

    Returns:
      The checkpoint's path; None if the folder has no checkpoint.

    Raises:
      UserError: the folder has checkpoints, but none is sound.
      tf.errors.PermissionDeniedError: a file of a checkpoint may not be read.
    """
    latest = checkpoints.latest(output_dir)
    if latest and not checkpoints.fault_of(latest):
        return latest
    steps = checkpoints.steps(output_dir)
    if not steps:  # A best/ alone is of an older run, whose checkpoints were removed.
        # TensorFlow would follow a name in its file to another folder.
        set_older_aside([tf.io.gfile.join(output_dir, checkpoints.STATE)], log)
        return None
    paths = [str(tf.io.gfile.join(output_dir, f"model.ckpt-{step}")) for step in steps]
    faults = {path: checkpoints.fault_of(path) for path in paths}
    sound = [path for path in paths if not faults[path]]
    if not sound:
        why = f"{paths[-1]} is damaged ({faults[paths[-1]]})"
        way_out = "restore its files from a copy, or name another --output-dir"
        raise UserError(f"{why}, and {output_dir} has no other checkpoint; {way_out}")
    for checkpoint, fault in faults.items():
        if fault:
            log(f"{checkpoint} is damaged ({fault}); its files now end in .damaged")
            for path in tf.io.gfile.glob(f"{checkpoint}.*"):
                set_aside(path, "damaged")
    names = [posixpath.basename(path) for path in sound]
    checkpoints.write_names(output_dir, names)
    log(f"training continues from the newest sound checkpoint, {names[-1]}")
    return sound[-1]


def settle_best(
    output_dir: str, start_step: int, validates: bool, log: Callable[[str], None]
) -> None:
    """Renames best/ if it is of an older run than one that begins at step 0.

    Without a validation split, the last checkpoint counts as the best, so best/ is renamed, too.

    Args:
      output_dir: path of the output folder.
      start_step: step from which training continues.
      validates: whether checkpoints are validated, here or by an evaluator.
      log: function that prints a line.

    Raises:
      DamagedError: the best checkpoint is damaged.
    """
    folder, best = tf.io.gfile.join(output_dir, BEST_DIR), checkpoints.best(output_dir)
    if best is None:
        return
    if start_step == 0:
        set_older_aside([folder], log)
    elif not validates:
        new = set_aside(folder, "older")
        log(f"without a validation split, the best checkpoint is the last; {folder} is now {new}")
    elif fault := checkpoints.fault_of(best.path):
        raise DamagedError(best.path, fault, f"move {folder} away")


def set_older_aside(paths: Sequence[str], log: Callable[[str], None]) -> None:
    """Renames the files of an older run, whose checkpoints were removed, when a new run begins.

    Otherwise other tasks and later starts would take them for those of the new run.

    Args:
      paths: paths of the files; those that are not there are left out.
      log: function that prints a line.
    """
    for path in paths:
        if tf.io.gfile.exists(path):
            log(f"{path} is of an older run; it is now {set_aside(path, 'older')}")


def set_aside(path: str, why: str) -> str:
    """Renames a file or folder to the first free one of `path.why`, `path.why-2`, ...

    Returns:
      The new path.
    """
    new, number = f"{path}.{why}", 1
    while tf.io.gfile.exists(new):
        number += 1
        new = f"{path}.{why}-{number}"
    tf.io.gfile.rename(path, new)
    return new


def remove_unfinished(output_dir: str, has_evaluator: bool) -> None:
    """Removes what a process that was killed left half written, also in best/ and export/.

    Args:
      output_dir: path of the output folder, which this process has locked.
      has_evaluator: whether an evaluator runs, which may be writing to best/.

    Raises:
      DamagedError: best.json is damaged.
    """
    folder = tf.io.gfile.join(output_dir, BEST_DIR)
    _remove(output_dir, _UNFINISHED)
    _remove(tf.io.gfile.join(output_dir, EXPORT_DIR), re.compile(rf"{re.escape(PART)}.+"))
    if not has_evaluator:
        _remove(folder, _UNFINISHED)
        if best := checkpoints.best(output_dir):
            _remove(folder, re.compile(r"model\.ckpt-.+"), f"{posixpath.basename(best.path)}.")


def _remove(folder: str, names: re.Pattern[str], kept: str = "/") -> None:
    """Removes files and folders of such names, but not those that begin with `kept`."""
    for name in tf.io.gfile.listdir(folder) if tf.io.gfile.isdir(folder) else ():
        path = tf.io.gfile.join(folder, name)
        if names.fullmatch(name) and not name.startswith(kept):
            with contextlib.suppress(tf.errors.NotFoundError):  # Its process has renamed it.
                (tf.io.gfile.rmtree if tf.io.gfile.isdir(path) else tf.io.gfile.remove)(path)
