"""training.json: what training tells processes that share only its output folder.

An evaluator that is listed in the cluster is known to the master. One that is not announces itself
by a file that it touches again and again; a master that starts while it does leaves validation to
it. One that comes later finds in training.json that the master validates, and leaves it to that.
"""

import time
from typing import Any, Optional

import tensorflow.compat.v1 as tf

from cifar10.host.files import read_json, write_json

_NOTE, _MARK, _PROBE = "training.json", "evaluator.json", ".time-probe"
_FRESH_SECS = 15.0
TOUCH_SECS = 3.0


def write(
    output_dir: str, validates: bool, ended_at: Optional[int] = None, status: str = ""
) -> None:
    """Notes how training stands.

    Args:
      output_dir: the run's folder.
      validates: whether the master validates its checkpoints itself.
      ended_at: the last global step, once training is over; None: it goes on.
      status: how it ended, for people.
    """
    note = {"master_validates": validates, "ended_at_step": ended_at, "status": status}
    write_json(_path(output_dir, _NOTE), note)


def read(output_dir: str) -> Optional[dict[str, Any]]:
    """Returns the note; None where training has not begun."""
    path = _path(output_dir, _NOTE)
    return read_json(path) if tf.io.gfile.exists(path) else None


def touch_mark(output_dir: str) -> None:
    """Marks that an evaluator runs; it calls this again and again."""
    write_json(_path(output_dir, _MARK), {"alive_at": time.time()})


def remove_mark(output_dir: str) -> None:
    """Removes the mark of an evaluator that ends."""
    path = _path(output_dir, _MARK)
    if tf.io.gfile.exists(path):
        tf.io.gfile.remove(path)


def evaluator_is_here(output_dir: str) -> bool:
    """Whether an evaluator has touched its mark lately, by the clock of the file system."""
    mark, probe = _path(output_dir, _MARK), _path(output_dir, _PROBE)
    if not tf.io.gfile.exists(mark):
        return False
    write_json(probe, {})
    age = tf.io.gfile.stat(probe).mtime_nsec - tf.io.gfile.stat(mark).mtime_nsec
    tf.io.gfile.remove(probe)
    return bool(age < _FRESH_SECS * 1e9)


def _path(output_dir: str, name: str) -> str:
    return str(tf.io.gfile.join(output_dir, name))
