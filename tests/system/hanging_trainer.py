"""cifar10_main.py as a trainer that hangs at its step HANG_AT, while its TensorFlow server answers.

The environment variable HANG says where: `input` (a batch never comes) or `hook` (the main thread
sleeps between two steps). Without it, nothing hangs.
"""

import os
import pathlib
import sys
import time
from typing import Any

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))

import tensorflow.compat.v1 as tf

from cifar10.host.process_end import leave
from cifar10.input import pipeline
from cifar10.main import main
from cifar10.run.hooks.finite import FiniteLossHook

PROGRAM = pathlib.Path(__file__)
HANG_AT = 60
_after_run, _batches = FiniteLossHook.after_run, pipeline.training_batches
_steps = 0


def _sleep_at_a_step(hook: FiniteLossHook, run_context: Any, run_values: Any) -> None:
    global _steps
    _steps += 1
    if _steps == HANG_AT:
        time.sleep(10_000)
    _after_run(hook, run_context, run_values)


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
    if os.environ.get("HANG") == "hook":
        FiniteLossHook.after_run = _sleep_at_a_step  # type: ignore[method-assign, assignment]
    elif os.environ.get("HANG") == "input":
        pipeline.training_batches = _batches_that_end_coming  # type: ignore[assignment]
    leave(main())
