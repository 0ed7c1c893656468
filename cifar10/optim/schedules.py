"""Learning-rate schedules: functions from the progress of training to a learning-rate factor.

The learning rate is this factor times the highest rate. A schedule is a function decorated with
`@schedule`; its name is its value of `--schedule`. The functions import TensorFlow themselves,
since --help needs only the names.
"""

import math
from typing import Any, Callable, NamedTuple

# The tutorial's stages: the epochs at which stages 1 to 3 begin, and the factors of stages 0 to 3.
STAGE_EPOCHS = (82.0, 123.0, 300.0)
STAGE_FACTORS = (1.0, 0.1, 0.01, 0.002)


class ScheduleProgress(NamedTuple):
    """The progress of training.

    Attributes:
      share: completed share of the run, a float32 scalar tensor from 0 to 1.
      epochs: completed epochs, a float64 scalar tensor.
    """

    share: Any
    epochs: Any


# A function from ScheduleProgress to the factor, a float32 scalar.
Schedule = Callable[[ScheduleProgress], Any]


_SCHEDULES: dict[str, tuple[Schedule, str]] = {}
NAMES = _SCHEDULES.keys()  # a view: it includes those that are registered later


def schedule(text: str) -> Callable[[Schedule], Schedule]:
    """Returns a decorator that registers a schedule under its function's name.

    Args:
      text: description of the schedule for --help.

    Raises:
      ValueError: there already is a schedule of that name.
    """

    def register(function: Schedule) -> Schedule:
        name = function.__name__
        if name in _SCHEDULES:
            raise ValueError(f"schedule {name} exists already; choose another name")
        _SCHEDULES[name] = (function, text)
        return function

    return register


def unregister(name: str) -> None:
    """Removes a schedule."""
    del _SCHEDULES[name]


def factor(name: str, progress: ScheduleProgress) -> Any:
    """Returns the learning-rate factor of a schedule, a float32 scalar."""
    return _SCHEDULES[name][0](progress)


def described() -> str:
    """Returns the names and descriptions of all schedules in one line, for --help."""
    return "; ".join(f"{name}: {text}" for name, (_, text) in _SCHEDULES.items())


@schedule("x1, x.1, x.01, x.002 from epochs 82, 123 and 300, whenever the run ends")
def staged(progress: ScheduleProgress) -> Any:
    """Returns the factor of the current stage."""
    import tensorflow.compat.v1 as tf

    stage = tf.reduce_sum(tf.cast(progress.epochs >= STAGE_EPOCHS, tf.int32))
    return tf.gather(STAGE_FACTORS, stage)


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
    import tensorflow.compat.v1 as tf

    return tf.constant(1.0)
