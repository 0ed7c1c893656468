"""The learning rate of a step: the highest rate times the schedule's and the warm-up's factors.

The schedule counts examples, not steps, so that it does not depend on the batch size or on the
number of towers and workers.
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
      config: the settings, with schedule, highest rate and warm-up.
      examples_seen: the number of training images that the whole job has seen, an int64 scalar.
      num_examples: the number of images in the training split, that is in an epoch.
      total_examples: the number of images that the job has seen when training ends.
      examples_per_step: the number of images in a global step, over all towers and synchronous
        trainers.
      staleness: the staleness of the gradients, in updates; see `rates.highest_rate`.
    """
    # TensorFlow divides integers in float64, which counts more images exactly than float32.
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
