"""The learning rate of a step: the highest rate times the schedule's and the warm-up's factors.

The schedule counts examples, not steps, so that it does not depend on the batch size or on the
number of towers and workers.

A learning rate fits a batch size: the mean gradient of more images has less noise, so the rate may
grow in proportion to the batch (Goyal et al. 2017, arXiv:1706.02677, section 2.1). The batch size
that matters is that of a global step: the images of all towers and of all synchronous trainers.

A learning rate also fits a model. Training diverges if steps are too long for the curvature of the
loss, however little noise there is (Shallue et al. 2018, arXiv:1811.03600). On a quadratic loss of
curvature h, momentum m diverges at rates above 2 (1 + m) / h. If the gradient is computed from the
weights before the previous update, the limit is (1 - m) / h, which is 38 times lower for m = 0.9.
If it is computed from weights that are k updates old, the limit is about (1 - m) / (k h). For
Nesterov momentum of 0.9, the limits are 1.36 / h, and 0.25 / h for weights that are one update old.
"""

from typing import Any

import tensorflow.compat.v1 as tf

from cifar10 import models, optim
from cifar10.models.base import Rate
from cifar10.optim import schedules

# The warm-up unless --warmup-epochs is set: these steps, but at most this share of the run. Some
# models need only a part of it.
WARMUP_STEPS, MOST_WARMUP_SHARE = 50, 0.25


def highest_rate(config: Any, examples_per_step: int, staleness: int = 0) -> float:
    """Returns the learning rate at the peak of the schedule.

    Args:
      config: the settings; they decide the rate, the model and the optimizer.
      examples_per_step: training images in a global step.
      staleness: updates by other trainers between reading the weights and applying the gradient
        computed from them: 0, or in asynchronous training the number of other trainers.
    """
    of_model = models.find(config.model).rate(config)
    default = optim.find(config.optimizer).rate(of_model)
    value, images, most, most_stale = default._replace(
        images=config.learning_rate_batch or default.images
    )
    if config.learning_rate is not None:
        value, images, most, most_stale = Rate(config.learning_rate, config.learning_rate_batch)
    if images is not None:
        value *= examples_per_step / images
    if staleness and most_stale is not None:
        most = most_stale / staleness
    return value if most is None else min(value, most)


def warmup_steps(config: Any, steps_per_epoch: float, total_steps: float) -> float:
    """Returns the number of global steps over which the learning rate rises at the start.

    Args:
      config: the settings; they decide the warm-up and the model.
      steps_per_epoch: global steps in an epoch.
      total_steps: global step at which training ends.
    """
    if config.warmup_epochs is not None:
        return config.warmup_epochs * steps_per_epoch
    share = models.find(config.model).warmup_share(config)
    return share * min(WARMUP_STEPS, MOST_WARMUP_SHARE * total_steps)


def learning_rate(
    config: Any,
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
      staleness: the staleness of the gradients, in updates; see `highest_rate`.
    """
    # TensorFlow divides integers in float64, which counts more images exactly than float32.
    progress = schedules.ScheduleProgress(
        share=tf.minimum(1.0, tf.cast(examples_seen / total_examples, tf.float32)),
        epochs=examples_seen / num_examples,
    )
    factor = schedules.factor(config.schedule, progress)
    steps_per_epoch, total_steps = (
        count / examples_per_step for count in (num_examples, total_examples)
    )
    rising = warmup_steps(config, steps_per_epoch, total_steps)
    # One is added so that the rate of the first step is not 0.
    risen = (examples_seen / examples_per_step + 1.0) / max(1.0, rising)
    factor *= tf.minimum(1.0, tf.cast(risen, tf.float32))
    return highest_rate(config, examples_per_step, staleness) * factor
