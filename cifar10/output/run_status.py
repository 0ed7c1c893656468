"""training.json: the state of training, for processes that share only its output folder.

The master knows an evaluator that its cluster lists. For one that it does not list, evaluators
rewrite evaluator.json every few seconds; a master that starts meanwhile leaves validation to the
evaluator. An evaluator that starts later reads in training.json that the master validates, and does
not validate.
"""

import time
from typing import Any, Optional

import tensorflow.compat.v1 as tf

from cifar10.errors import DamagedError
from cifar10.host import files
from cifar10.host.files import read_json, write_json

_NOTE, _MARK, _PROBE = "training.json", "evaluator.json", ".time-probe"
# The fields of training.json, and their types.
_FIELDS: dict[str, tuple[type, ...]] = {
    "master_validates": (bool,),
    "ended_at_step": (int, type(None)),
    "status": (str,),
}
_FRESH_SECS = 15.0
TOUCH_SECS = 3.0


def write(
    output_dir: str, validates: bool, ended_at: Optional[int] = None, status: str = ""
) -> None:
    """Writes training.json.

    Args:
      output_dir: path of the output folder.
      validates: whether the master validates its checkpoints itself.
      ended_at: last global step if training is over; None: training continues.
      status: text that says how training ended.
    """
    note = {"master_validates": validates, "ended_at_step": ended_at, "status": status}
    write_json(_path(output_dir, _NOTE), note)


def read(output_dir: str) -> Optional[dict[str, Any]]:
    """Returns the content of training.json; None if training has not begun.

    Raises:
      DamagedError: the file is damaged.
      UnreadableError: the file cannot be read.
    """
    path = _path(output_dir, _NOTE)
    if not files.exists(path):
        return None
    note = read_json(path)
    for name, kinds in _FIELDS.items():
        if not isinstance(note, dict) or not isinstance(note.get(name, ...), kinds):
            raise DamagedError(path, f"it has no {name}")
    return dict(note)


def touch_mark(output_dir: str) -> None:
    """Rewrites evaluator.json; an evaluator that makes progress calls this every TOUCH_SECS."""
    write_json(_path(output_dir, _MARK), {"alive_at": time.time()})


class Mark(tf.train.SessionRunHook):
    """The evaluator.json of this process, rewritten after each batch of an evaluation, too.

    Args:
      output_dir: path of the output folder.
    """

    def __init__(self, output_dir: str) -> None:
        self._output_dir, self._touched = output_dir, time.monotonic()

    def keep(self) -> None:
        """Rewrites evaluator.json if that is due."""
        if time.monotonic() - self._touched > TOUCH_SECS:
            touch_mark(self._output_dir)
            self._touched = time.monotonic()

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """Rewrites evaluator.json if that is due."""
        self.keep()


def remove_mark(output_dir: str) -> None:
    """Removes evaluator.json when the evaluator ends."""
    path = _path(output_dir, _MARK)
    if tf.io.gfile.exists(path):
        tf.io.gfile.remove(path)


def evaluator_is_here(output_dir: str) -> bool:
    """Returns whether evaluator.json was rewritten recently."""
    silence = evaluator_silence(output_dir)
    return silence is not None and silence < _FRESH_SECS


def evaluator_silence(output_dir: str) -> Optional[float]:
    """Returns the seconds since evaluator.json was rewritten, by the clock of the file system.

    It returns None if there is no such file.
    """
    mark, probe = _path(output_dir, _MARK), _path(output_dir, _PROBE)
    try:
        renewed = tf.io.gfile.stat(mark).mtime_nsec
    except tf.errors.NotFoundError:
        return None
    write_json(probe, {})
    now = tf.io.gfile.stat(probe).mtime_nsec
    tf.io.gfile.remove(probe)
    return float(now - renewed) / 1e9


def _path(output_dir: str, name: str) -> str:
    return str(tf.io.gfile.join(output_dir, name))
