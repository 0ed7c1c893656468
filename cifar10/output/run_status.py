"""evaluator.json: shows that an evaluator validates, to a master whose cluster does not list it.

Evaluators rewrite it every few seconds; a master that starts meanwhile leaves validation to the
evaluator. An evaluator that starts later reads in run.json that the master validates, and does not
validate.
"""

import time
from typing import Any, Optional

import tensorflow.compat.v1 as tf

from cifar10.host.files import write_json

_MARK, _PROBE = "evaluator.json", ".time-probe"
_FRESH_SECS = 15.0
TOUCH_SECS = 3.0


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
