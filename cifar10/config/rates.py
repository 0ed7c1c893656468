"""The highest learning rate and the warm-up of a run. Standard library only.

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

from cifar10 import models
from cifar10.config.fields import OPTIMIZERS
from cifar10.config.train_config import TrainConfig
from cifar10.models.base import Rate

# The warm-up unless --warmup-epochs is set: these steps, but at most this share of the run. Some
# models need only a part of it.
WARMUP_STEPS, MOST_WARMUP_SHARE = 50, 0.25


def base_rate(config: TrainConfig) -> Rate:
    """Returns the rate that the flags give, or else one that fits the model and the optimizer."""
    if config.learning_rate is not None:
        return Rate(config.learning_rate, config.learning_rate_batch)
    default = OPTIMIZERS[config.optimizer].rate or models.find(config.model).rate(config)
    return default._replace(images=config.learning_rate_batch or default.images)


def highest_rate(config: TrainConfig, examples_per_step: int, staleness: int = 0) -> float:
    """Returns the learning rate at the peak of the schedule.

    Args:
      config: the settings; they decide the rate, the model and the optimizer.
      examples_per_step: training images in a global step.
      staleness: updates by other trainers between reading the weights and applying the gradient
        computed from them: 0, or in asynchronous training the number of other trainers.
    """
    value, images, most, most_stale = base_rate(config)
    if images is not None:
        value *= examples_per_step / images
    if staleness and most_stale is not None:
        most = most_stale / staleness
    return value if most is None else min(value, most)


def warmup_steps(config: TrainConfig, steps_per_epoch: float, total_steps: float) -> float:
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
