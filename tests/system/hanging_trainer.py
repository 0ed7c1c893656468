"""cifar10_main.py as a trainer that hangs at its step HANG_AT, while its TensorFlow server answers.

With the environment variable HANG, that step's batch never comes. Without it, nothing hangs.
"""

import os
import pathlib
import sys
import time
from typing import Any

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))

import tensorflow.compat.v1 as tf

from cifar10.host.process import leave
from cifar10.input import pipeline
from cifar10.main import main

PROGRAM = pathlib.Path(__file__)
HANG_AT = 60
_batches = pipeline.training_batches


def _batches_that_end_coming(*arguments: Any) -> Any:
    def wait(number: int) -> int:
        if number == HANG_AT:
            time.sleep(10_000)
        return number

    def pass_on(number: Any, batch: Any) -> Any:
        with tf.control_dependencies([tf.numpy_function(wait, [number], tf.int64)]):
            return tuple(tf.identity(one) for one in batch)

    numbers = tf.data.Dataset.range(2**40)
    return tf.data.Dataset.zip((numbers, _batches(*arguments))).map(pass_on)


if __name__ == "__main__":
    if "HANG" in os.environ:
        pipeline.training_batches = _batches_that_end_coming  # type: ignore[assignment]
    leave(main())
