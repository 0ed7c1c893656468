"""The learning rate of a step: the highest rate, times the schedule's factor, times the warm-up's.

Time is counted in examples, not in steps, so that batch size, towers and workers do not shift it.
"""

from typing import Any

import tensorflow.compat.v1 as tf

from cifar10 import schedules
from cifar10.config import rates
from cifar10.config.train_config import TrainConfig


def learning_rate(
    config: TrainConfig,
    examples_seen: Any,
    num_examples: int,
    total_examples: int,
    examples_per_step: int,
    staleness: int = 0,
) -> Any:
    """Returns the learning rate of a step, a float32 scalar.

    Args:
      config: schedule, highest rate and warm-up.
      examples_seen: int64 scalar, training images seen so far by the whole job.
      num_examples: images in the training split, that is in an epoch.
      total_examples: images seen when training ends.
      examples_per_step: images of a global step, of all towers and synchronous trainers.
      staleness: of the gradients, see `rates.highest_rate`.
    """
    # Whole numbers are divided in float64, which counts more images than float32.
    progress = schedules.Progress(
        share=tf.minimum(1.0, tf.cast(examples_seen / total_examples, tf.float32)),
        epochs=examples_seen / num_examples,
    )
    factor = schedules.factor(config.schedule, progress)
    steps_per_epoch, total_steps = (
        count / examples_per_step for count in (num_examples, total_examples)
    )
    warmup_steps = rates.warmup_steps(config, steps_per_epoch, total_steps)
    # One is added so that the rate of the first step is not 0.
    risen = (examples_seen / examples_per_step + 1.0) / max(1.0, warmup_steps)
    factor *= tf.minimum(1.0, tf.cast(risen, tf.float32))
    return rates.highest_rate(config, examples_per_step, staleness) * factor
