"""--early-stopping-epochs and --stop-at-accuracy: whether validations say that training may end.

They are judged by the recorded validations alone, so that a run that is started again goes on
judging where it was.
"""

import contextlib
import math
import time
from collections.abc import Sequence
from typing import Any, Callable, NamedTuple, Optional

import tensorflow.compat.v1 as tf

from cifar10.config.train_config import TrainConfig
from cifar10.errors import ConfigError, UserError
from cifar10.input.records import RecordSet
from cifar10.output import checkpoints
from cifar10.output.history import History, validations

AT_ACCURACY, EARLY = "stopped by --stop-at-accuracy", "stopped by --early-stopping-epochs"
_EVALUATOR_SECS = 2.0  # between two looks at the rows of a separate evaluator
_ROUNDING = 1e-6  # an accuracy of 0.9 is 0.89999998 in float32
_EPOCH_ROUNDING = 1e-5  # of the last epoch: two numbers with six significant digits
Rows = Sequence[dict[str, Any]]


class Ending(NamedTuple):
    """Why training ends before its last step.

    Attributes:
      status: the status of result.json.
      line: the line that says so.
    """

    status: str
    line: str


def are_set(config: TrainConfig) -> bool:
    """Returns whether a flag sets a goal."""
    return config.early_stopping_epochs is not None or config.stop_at_accuracy is not None


def check(config: TrainConfig, records: RecordSet) -> None:
    """Raises ConfigError if a goal is set, but nothing can be validated."""
    if are_set(config) and not records.has_validation:
        raise ConfigError(
            "--early-stopping-epochs and --stop-at-accuracy need validations, but "
            f"{records.data_dir} has no validation records; make them without --validation-size 0, "
            "or leave the flag out"
        )


def ended_before(config: TrainConfig, step: int) -> Optional[Ending]:
    """Returns why a run that is started again had ended at `step`; None if it goes on."""
    if not are_set(config):
        return None
    return reached(config, validations(config.output_place, step))


def reached(config: TrainConfig, rows: Rows) -> Optional[Ending]:
    """Returns why training ends after these validations; None if it goes on.

    Args:
      config: the settings.
      rows: the rows of all validations, in the order of steps; see `History.validation`.
    """
    sound = [row for row in rows if math.isfinite(row["loss"])]
    target, patience = config.stop_at_accuracy, config.early_stopping_epochs
    if target is not None:
        enough = next((row for row in sound if row["accuracy"] >= target - _ROUNDING), None)
        if enough:
            return Ending(
                AT_ACCURACY,
                f"training ends: validation accuracy {enough['accuracy']:.4f} at step "
                f"{enough['step']:,} has reached --stop-at-accuracy {target:g}",
            )
    if patience is not None and rows:
        best = max(sound or rows, key=lambda row: row["accuracy"])  # the first one of equals
        last = rows[-1]
        epochs = last["epoch"] - best["epoch"]
        if epochs >= patience - _EPOCH_ROUNDING * last["epoch"] and last["step"] > best["step"]:
            return Ending(
                EARLY,
                f"training ends: validation accuracy has not risen above {best['accuracy']:.4f} of "
                f"step {best['step']:,} for {epochs:.1f} epochs (--early-stopping-epochs "
                f"{patience:g})",
            )
    return None


class Goals:
    """The goals of a run, judged after each of its validations.

    Those of a separate evaluator are judged by its files, which are read every two seconds.

    Args:
      config: the settings.
      history: the rows of this process.
      has_evaluator: whether a separate process validates.
      say: function that prints the line of an end, once.

    Attributes:
      ending: why training ends; None as long as it goes on.
      has_evaluator: the argument `has_evaluator`, which changes when this process takes over.
    """

    def __init__(
        self, config: TrainConfig, history: History, has_evaluator: bool, say: Callable[[str], None]
    ) -> None:
        self._config, self._history, self._say = config, history, say
        self.has_evaluator = has_evaluator
        self.ending: Optional[Ending] = None
        self._rows: Rows = ()
        self._judged, self._read_at = 0, -math.inf

    def are_reached(self) -> bool:
        """Judges the validations if there are new ones; returns whether training ends."""
        if self.ending is None and are_set(self._config):
            rows = self._rows_of_evaluator() if self.has_evaluator else self._history.validation
            if rows and rows[-1]["step"] != self._judged:
                self._judged = rows[-1]["step"]
                self.ending = reached(self._config, rows)
                if self.ending:
                    self._say(self.ending.line)
        return self.ending is not None

    def _rows_of_evaluator(self) -> Rows:
        """Returns the rows of the validations of steps that are saved."""
        if time.monotonic() - self._read_at >= _EVALUATOR_SECS:
            place, self._read_at = self._config.output_place, time.monotonic()
            # A checkpoint may be damaged or not be read now; later looks may find another one.
            with contextlib.suppress(UserError, tf.errors.OpError):
                self._rows = validations(place, checkpoints.latest_step(place))
        return self._rows
