"""cifar10_main.py where something takes long or never comes, however fast the machine is.

Environment variables say what; without them, nothing is slow:
  HANG                   the batch of step HANG_AT never comes; the TensorFlow server answers
  VALIDATION_BATCH_SECS  the least time for each batch of a validation during training
  HOLD_EVAL              the path of a file; while it exists, no batch of the eval split ends
"""

import os
import pathlib
import sys
import time
from typing import Any

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))

import tensorflow.compat.v1 as tf

from cifar10.guard.hooks import EvaluationPhase
from cifar10.host.process import leave
from cifar10.input import pipeline
from cifar10.main import main
from cifar10.schema import EVAL

PROGRAM = pathlib.Path(__file__)
HANG_AT = 60
_batches = pipeline.training_batches
_evaluation_batches = pipeline.evaluation_batches
_before_batch = EvaluationPhase.before_run
_split = ""


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


def _batches_of(records: Any, split: str, *arguments: Any) -> Any:
    global _split
    _split = split
    return _evaluation_batches(records, split, *arguments)


def _wait_for_batch(hook: EvaluationPhase, run_context: Any) -> None:
    _before_batch(hook, run_context)
    if _split != EVAL:
        time.sleep(float(os.environ.get("VALIDATION_BATCH_SECS", "0")))
    while _split == EVAL and os.path.exists(os.environ.get("HOLD_EVAL", "")):
        time.sleep(0.05)


if __name__ == "__main__":
    if "HANG" in os.environ:
        pipeline.training_batches = _batches_that_end_coming  # type: ignore[assignment]
    pipeline.evaluation_batches = _batches_of  # type: ignore[assignment]
    EvaluationPhase.before_run = _wait_for_batch  # type: ignore[assignment,method-assign]
    leave(main())
