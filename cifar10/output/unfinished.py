"""Files that a killed process left half written, under temporary names."""

import contextlib
import re

import tensorflow.compat.v1 as tf

from cifar10.host.files import PART, readable
from cifar10.output.checkpoints import BEST_DIR

_UNFINISHED = re.compile(rf"model\.ckpt-\d+.*\.tempstate\d+|checkpoint\.tmp[0-9a-f]+|{PART}")


def remove_unfinished(output_dir: str, log_dir: str) -> None:
    """Removes such files from an output folder, its best/ and a log folder.

    No other process may write checkpoints there meanwhile.

    Args:
      output_dir: path of the output folder.
      log_dir: path of the log folder; it may be the same folder.

    Raises:
      UnreadableError: this user may not list one of the folders.
    """
    for folder in (output_dir, tf.io.gfile.join(output_dir, BEST_DIR), log_dir):
        with readable(folder):
            names = tf.io.gfile.listdir(folder) if tf.io.gfile.isdir(folder) else []
        for name in names:
            if not _UNFINISHED.fullmatch(name):
                continue
            with contextlib.suppress(tf.errors.NotFoundError):  # An evaluator has renamed it.
                tf.io.gfile.remove(tf.io.gfile.join(folder, name))
