"""Learning rates: the highest rate, times the factor of a schedule and that of the warm-up.

A schedule is a function from the progress of training to a factor, decorated with `@schedule`; its
name is its value of `--schedule`. It counts examples, not steps, so that it does not depend on the
batch size or on the number of towers and workers. The functions import TensorFlow themselves, since
--help needs only the names.

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

import math
from typing import Any, Callable, NamedTuple

from cifar10 import models, optim
from cifar10.config.registry import Entry, Registry
from cifar10.models.base import Rate

# The warm-up unless --warmup-epochs is set: these steps, but at most this share of the run. Some
# models need only a part of it.
WARMUP_STEPS, MOST_WARMUP_SHARE = 50, 0.25


class ScheduleProgress(NamedTuple):
    """The progress of training.

    Attributes:
      share: completed share of the run, a float32 scalar tensor from 0 to 1.
      epochs: completed epochs, a float64 scalar tensor.
    """

    share: Any
    epochs: Any


# A function from ScheduleProgress to the factor, a float32 scalar.
Factor = Callable[[ScheduleProgress], Any]


class Schedule(Entry):
    """A schedule that `--schedule` can name.

    Args:
      factor: the function, whose name is the schedule's.
      text: description of the schedule for --help.
    """

    def __init__(self, factor: Factor, text: str) -> None:
        self.name, self.factor, self.text = factor.__name__, factor, text


REGISTRY: Registry[Schedule] = Registry("schedule")
NAMES, unregister = REGISTRY.names, REGISTRY.unregister


def schedule(text: str) -> Callable[[Factor], Factor]:
    """Returns a decorator that registers a schedule under its function's name.

    Args:
      text: description of the schedule for --help.

    Raises:
      ValueError: there already is a schedule of that name.
    """

    def register(factor: Factor) -> Factor:
        REGISTRY.register(Schedule(factor, text))
        return factor

    return register


def described() -> str:
    """Returns the names and descriptions of all schedules in one line, for --help."""
    return "; ".join(f"{name}: {REGISTRY.find(name).text}" for name in NAMES)


@schedule("x1, x.1, x.01, x.002 from epochs 82, 123 and 300, whenever the run ends")
def staged(progress: ScheduleProgress) -> Any:
    """Returns the factor of the current stage, one of the tutorial's four."""
    import tensorflow.compat.v1 as tf

    stage = tf.reduce_sum(tf.cast(progress.epochs >= (82.0, 123.0, 300.0), tf.int32))
    return tf.gather((1.0, 0.1, 0.01, 0.002), stage)


@schedule("x1, x.1, x.01 from a half and three quarters of the run")
def multistep(progress: ScheduleProgress) -> Any:
    """Falls to a tenth twice.

    Source: He et al. 2015, arXiv:1512.03385, section 4.2: at 32,000 and 48,000 of 64,000 steps.
    """
    import tensorflow.compat.v1 as tf

    return 0.1 ** tf.reduce_sum(tf.cast(progress.share >= (0.5, 0.75), tf.float32))


@schedule("to 0 at the end, slowly at both ends")
def cosine(progress: ScheduleProgress) -> Any:
    """Falls from 1 to 0 along half a cosine wave.

    Source: Loshchilov and Hutter 2017, arXiv:1608.03983, without restarts.
    """
    import tensorflow.compat.v1 as tf

    return 0.5 * (1.0 + tf.cos(math.pi * progress.share))


@schedule("to 0 at the end")
def linear(progress: ScheduleProgress) -> Any:
    """Falls from 1 to 0 in a straight line."""
    return 1.0 - progress.share


@schedule("from x.2 up until .23 of the run, then down to x.07")
def triangular(progress: ScheduleProgress) -> Any:
    """Rises in a straight line to 1 at the peak, then falls in a straight line."""
    import tensorflow.compat.v1 as tf

    # Those of airbench94: the factors at both ends, and the peak's position as a share of the run.
    start, end, peak_at = 0.2, 0.07, 0.23
    up = start + (1.0 - start) * progress.share / peak_at
    down = 1.0 + (end - 1.0) * (progress.share - peak_at) / (1.0 - peak_at)
    return tf.minimum(up, down)


@schedule("the highest rate to the end")
def constant(progress: ScheduleProgress) -> Any:
    """Stays at 1."""
    return 1.0


def highest_rate(config: Any, examples_per_step: int, staleness: int = 0) -> float:
    """Returns the learning rate at the peak of the schedule.

    Args:
      config: the settings; they decide the rate, the model and the optimizer.
      examples_per_step: training images in a global step.
      staleness: updates by other trainers between reading the weights and applying the gradient
        computed from them: 0, or in asynchronous training the number of other trainers.
    """
    of_model = models.find(config.model).rate(config)
    rate = optim.find(config.optimizer).rate(of_model)
    if config.learning_rate is not None:
        rate = Rate(config.learning_rate, None)
    value, images, most, most_stale = rate
    images = config.learning_rate_batch or images
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


def learning_rate(params: Any, examples_seen: Any) -> Any:
    """Returns the learning rate of a step, a float32 scalar.

    Args:
      params: the run's `ModelParams`, which has the settings and the length of the run.
      examples_seen: the number of training images that the whole job has seen, an int64 scalar.
    """
    import tensorflow.compat.v1 as tf

    config, examples_per_step = params.config, params.examples_per_step
    # TensorFlow divides integers in float64, which counts more images exactly than float32.
    progress = ScheduleProgress(
        share=tf.minimum(1.0, tf.cast(examples_seen / params.total_examples, tf.float32)),
        epochs=examples_seen / params.num_examples,
    )
    factor = REGISTRY.find(config.schedule).factor(progress)
    steps_per_epoch = params.num_examples / examples_per_step
    total_steps = params.total_examples / examples_per_step
    rising = warmup_steps(config, steps_per_epoch, total_steps)
    # One is added so that the rate of the first step is not 0.
    risen = (examples_seen / examples_per_step + 1.0) / max(1.0, rising)
    factor *= tf.minimum(1.0, tf.cast(risen, tf.float32))
    return highest_rate(config, examples_per_step, params.replication.staleness) * factor
