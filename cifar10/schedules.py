"""Learning-rate schedules: how far training has come -> a factor of the highest rate.

A schedule is one function with `@schedule` before it; `--schedule` knows it by its name. TensorFlow
is imported where a function needs it, since --help needs the names alone.
"""

import math
from typing import Any, Callable, NamedTuple

# The tutorial's stages: from these epochs on, these factors.
STAGE_EPOCHS = (82.0, 123.0, 300.0)
STAGE_FACTORS = (1.0, 0.1, 0.01, 0.002)
# The triangle: factors at its start and its end, and the share of the run at its peak (airbench94).
_TRIANGLE_START, _TRIANGLE_END, _TRIANGLE_PEAK_AT = 0.2, 0.07, 0.23


class Progress(NamedTuple):
    """How far training has come; both are scalar tensors.

    Attributes:
      share: of the run, float32, from 0 to 1.
      epochs: float64.
    """

    share: Any
    epochs: Any


# Progress -> the factor, a float32 scalar.
Schedule = Callable[[Progress], Any]


class _Entry(NamedTuple):
    function: Schedule
    text: str


_REGISTRY: dict[str, _Entry] = {}
NAMES = _REGISTRY.keys()  # also of those that are registered later


def schedule(text: str) -> Callable[[Schedule], Schedule]:
    """Registers a function under its name.

    Args:
      text: what it does, for --help.
    """

    def register(function: Schedule) -> Schedule:
        name = function.__name__
        if name in _REGISTRY:
            raise ValueError(f"there is a schedule {name} already; choose another name")
        _REGISTRY[name] = _Entry(function, text)
        return function

    return register


def unregister(name: str) -> None:
    """Removes a schedule."""
    del _REGISTRY[name]


def factor(name: str, progress: Progress) -> Any:
    """The factor of the schedule of this name.

    Raises:
      LookupError: there is none.
    """
    if name not in _REGISTRY:
        raise LookupError(f"a schedule must be one of {', '.join(NAMES)}, got {name!r}")
    return _REGISTRY[name].function(progress)


def described() -> str:
    """All schedules in one line, for --help."""
    return "; ".join(f"{name}: {entry.text}" for name, entry in _REGISTRY.items())


@schedule("x1, x.1, x.01, x.002 from epochs 82, 123 and 300, whenever the run ends")
def staged(progress: Progress) -> Any:
    """The factor of the stage that training is in; a stage begins at its epoch."""
    import tensorflow.compat.v1 as tf

    stage = tf.reduce_sum(tf.cast(progress.epochs >= STAGE_EPOCHS, tf.int32))
    return tf.gather(STAGE_FACTORS, stage)


@schedule("to 0 at the end, slowly at both ends")
def cosine(progress: Progress) -> Any:
    """Half a cosine wave (Loshchilov and Hutter 2017, arXiv:1608.03983, without restarts)."""
    import tensorflow.compat.v1 as tf

    return 0.5 * (1.0 + tf.cos(math.pi * progress.share))


@schedule("to 0 at the end")
def linear(progress: Progress) -> Any:
    """A straight line."""
    return 1.0 - progress.share


@schedule("from x.2 up until .23 of the run, then down to x.07")
def triangular(progress: Progress) -> Any:
    """Straight lines between the corners."""
    import tensorflow.compat.v1 as tf

    start, end, peak_at = _TRIANGLE_START, _TRIANGLE_END, _TRIANGLE_PEAK_AT
    up = start + (1.0 - start) * progress.share / peak_at
    down = 1.0 + (end - 1.0) * (progress.share - peak_at) / (1.0 - peak_at)
    return tf.minimum(up, down)


@schedule("the highest rate to the end")
def constant(progress: Progress) -> Any:
    """One."""
    import tensorflow.compat.v1 as tf

    return tf.constant(1.0)
