"""The highest learning rate and the warm-up of a run. Standard library only.

A rate fits a number of images: the mean gradient of more images is less noisy, so a step may go
further in proportion to them (Goyal et al. 2017, arXiv:1706.02677, section 2.1). What counts are
the images of a global step, those of all towers and of all synchronous trainers.

It fits a model, too. A step that is too long for the curvature of the loss diverges, however little
noise there is (Shallue et al. 2018, arXiv:1811.03600). On a quadratic loss of curvature h, momentum
m diverges at a rate above 2 (1 + m) / h, and above (1 - m) / h where the gradient is of the weights
one update earlier: 38 times less for m = .9. Where it is of those k updates earlier, the limit is
about (1 - m) / (k h). Nesterov's momentum of .9 diverges above 1.36 / h and .25 / h.
"""

from cifar10 import models
from cifar10.config.train_config import TrainConfig
from cifar10.models.base import Rate

# Goes with --muon-rate, whose default is for as many images.
_MUON = Rate(1.6, 2048, 1.6)
# Adam divides a gradient by its size, so noise does not lengthen its steps.
_ADAM = Rate(0.001, None)

# Unless --warmup-epochs says otherwise: these steps, but no more than this share of the run. Some
# models need fewer of them.
WARMUP_STEPS, MOST_WARMUP_SHARE = 50, 0.25


def base_rate(config: TrainConfig) -> Rate:
    """The rate that was asked for, or the one that fits the model and the optimizer."""
    if config.learning_rate is not None:
        return Rate(config.learning_rate, config.learning_rate_batch)
    if config.optimizer == "adam":
        default = _ADAM
    elif config.optimizer == "muon":
        default = _MUON
    else:
        default = models.find(config.model).rate(config)
    return default._replace(images=config.learning_rate_batch or default.images)


def highest_rate(config: TrainConfig, examples_per_step: int, staleness: int = 0) -> float:
    """The learning rate at the top of the schedule.

    Args:
      config: rate, model and optimizer.
      examples_per_step: images of a global step.
      staleness: updates of others between the weights that a gradient is of and its own update: 0,
        or in asynchronous training one for each other trainer.
    """
    value, images, most, most_stale = base_rate(config)
    if images is not None:
        value *= examples_per_step / images
    if staleness and most_stale is not None:
        most = most_stale / staleness
    return value if most is None else min(value, most)


def warmup_steps(config: TrainConfig, steps_per_epoch: float, total_steps: float) -> float:
    """Steps over which the learning rate rises at the start.

    Args:
      config: warm-up.
      steps_per_epoch: global steps for each training image to be seen once.
      total_steps: global step at which training ends.
    """
    if config.warmup_epochs is not None:
        return config.warmup_epochs * steps_per_epoch
    share = models.find(config.model).warmup_share(config)
    return share * min(WARMUP_STEPS, MOST_WARMUP_SHARE * total_steps)
