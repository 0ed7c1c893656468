"""Learning-rate schedules: examples seen -> learning rate.

Time is counted in examples, not in steps, so that batch size, towers and workers do not shift it.
"""

import math
from collections.abc import Sequence
from typing import Any

import tensorflow.compat.v1 as tf

from cifar10.config import rates
from cifar10.config.train_config import TrainConfig

# The tutorial's stages: from these epochs on, these factors.
STAGE_EPOCHS = (82.0, 123.0, 300.0)
STAGE_FACTORS = (1.0, 0.1, 0.01, 0.002)
# The triangle: factors at its start and its end, and the share of the run at its peak (airbench94).
_TRIANGLE_START, _TRIANGLE_END, _TRIANGLE_PEAK_AT = 0.2, 0.07, 0.23


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
    epochs = examples_seen / num_examples
    progress = tf.minimum(1.0, tf.cast(examples_seen / total_examples, tf.float32))
    if config.schedule == "staged":
        factor = _staged(epochs, STAGE_EPOCHS, STAGE_FACTORS)
    elif config.schedule == "triangular":
        factor = _triangular(progress)
    elif config.schedule == "linear":
        factor = 1.0 - progress
    elif config.schedule == "cosine":
        factor = 0.5 * (1.0 + tf.cos(math.pi * progress))
    elif config.schedule == "constant":
        factor = tf.constant(1.0)
    else:
        raise ValueError(f"no schedule {config.schedule!r}; it needs a branch here")
    steps_per_epoch, total_steps = (
        count / examples_per_step for count in (num_examples, total_examples)
    )
    warmup_steps = rates.warmup_steps(config, steps_per_epoch, total_steps)
    # The first step takes a small step, not none.
    risen = (examples_seen / examples_per_step + 1.0) / max(1.0, warmup_steps)
    factor *= tf.minimum(1.0, tf.cast(risen, tf.float32))
    return rates.highest_rate(config, examples_per_step, staleness) * factor


def _triangular(progress: Any) -> Any:
    """Linear between the corners."""
    start, end, peak_at = _TRIANGLE_START, _TRIANGLE_END, _TRIANGLE_PEAK_AT
    up = start + (1.0 - start) * progress / peak_at
    down = 1.0 + (end - 1.0) * (progress - peak_at) / (1.0 - peak_at)
    return tf.minimum(up, down)


def _staged(epochs: Any, boundaries: Sequence[float], factors: Sequence[float]) -> Any:
    """The factor of the stage that `epochs` is in; a stage begins at its boundary."""
    stage = tf.reduce_sum(tf.cast(epochs >= boundaries, tf.int32))
    return tf.gather(factors, stage)
