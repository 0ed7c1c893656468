"""Validates checkpoints, keeps the best one, and says whether a goal of training is reached.

Goals, --early-stopping-epochs and --stop-at-accuracy, are judged by the recorded validations alone,
whichever process made them, so that a run that is started again goes on judging where it was.
"""

import math
from typing import Callable, NamedTuple, Optional

from cifar10.config.train_config import TrainConfig
from cifar10.errors import ConfigError
from cifar10.guard import Guard
from cifar10.input.records import RecordSet
from cifar10.output import checkpoints
from cifar10.output.metrics import Metrics, rounded
from cifar10.run.job import Job, evaluation_input
from cifar10.run.tf_errors import clear_errors
from cifar10.schema import VALIDATION

_ROUNDING = 1e-6  # an accuracy of 0.9 is 0.89999998 in float32
_EPOCH_ROUNDING = 1e-5  # of the last epoch: two numbers with six significant digits


class Validator:
    """Validates checkpoints, keeps the best one, and adds a row for each.

    Args:
      job: the job that is trained.
      guarded: knows the hooks of an evaluation.
      metrics: the rows of the run; they get one for each validation.
      say: a function that prints a line.
    """

    def __init__(
        self, job: Job, guarded: Guard, metrics: Metrics, say: Callable[[str], None]
    ) -> None:
        self._job, self._guarded, self._metrics, self._say = job, guarded, metrics, say

    def validate_latest(self) -> None:
        """Validates the newest checkpoint, unless it has a row; see `validate`."""
        self.validate(checkpoints.latest(self._job.config.output_place))

    def validate(
        self, checkpoint: Optional[str], may_record: Callable[[], bool] = lambda: True
    ) -> None:
        """Validates a checkpoint that has no row, whatever else a killed process has left of that.

        Args:
          checkpoint: the checkpoint's path; None and the checkpoint of step 0 are not validated.
          may_record: function that returns, after the validation, whether it is recorded.

        Raises:
          DataError: records are damaged.
          Stopped: a signal arrived.
        """
        job, metrics = self._job, self._metrics
        step = checkpoints.read_counter(checkpoint, "global_step")
        if checkpoint is None or step in {0, *(row["step"] for row in metrics.of(VALIDATION))}:
            return
        with clear_errors(job.config):
            found = job.evaluation.evaluate(
                lambda: evaluation_input(job, VALIDATION),
                self._guarded.evaluation_hooks,
                checkpoint,
                VALIDATION,
            )
        if not may_record():
            return
        loss, accuracy = rounded(found["cross_entropy"]), rounded(found["accuracy"])
        # Finite weights may overflow: such a checkpoint is not one to keep, whatever its accuracy.
        is_best = math.isfinite(loss) and checkpoints.keep_if_best(
            job.config.output_place, checkpoint, step, accuracy
        )
        seen = checkpoints.read_counter(checkpoint, "examples_seen")
        figures = {"epoch": seen / job.num_examples, "loss": loss, "accuracy": accuracy}
        metrics.add(VALIDATION, step, **figures, seconds=metrics.seconds)
        best = " (best so far)" if is_best else ""
        self._say(f"validation accuracy {accuracy:.4f} at step {step:,}{best}")


class Ending(NamedTuple):
    """Why training ends before its last step.

    Attributes:
      status: the status of result.json.
      line: the line that says so.
    """

    status: str
    line: str


def check_goals(config: TrainConfig, records: RecordSet) -> None:
    """Raises ConfigError if a goal is set, but nothing can be validated."""
    goals = (config.early_stopping_epochs, config.stop_at_accuracy)
    if goals != (None, None) and not records.has_validation:
        raise ConfigError(
            "--early-stopping-epochs and --stop-at-accuracy need validations, but "
            f"{records.data_dir} has no validation records; make them without --validation-size 0, "
            "or leave the flag out"
        )


def ended_before(config: TrainConfig, step: int) -> Optional[Ending]:
    """Returns why training ends by the recorded validations up to a step; None if it goes on."""
    target, patience = config.stop_at_accuracy, config.early_stopping_epochs
    if target is None and patience is None:
        return None
    rows = Metrics(config.output_place, last_step=step).of(VALIDATION)
    sound = [row for row in rows if math.isfinite(row["loss"])]
    if target is not None:
        enough = next((row for row in sound if row["accuracy"] >= target - _ROUNDING), None)
        if enough:
            return Ending(
                "stopped by --stop-at-accuracy",
                f"training ends: validation accuracy {enough['accuracy']:.4f} at step "
                f"{enough['step']:,} has reached --stop-at-accuracy {target:g}",
            )
    if patience is not None and rows:
        best = max(sound or rows, key=lambda row: row["accuracy"])  # the first one of equals
        last = rows[-1]
        epochs = last["epoch"] - best["epoch"]
        if epochs >= patience - _EPOCH_ROUNDING * last["epoch"] and last["step"] > best["step"]:
            return Ending(
                "stopped by --early-stopping-epochs",
                f"training ends: validation accuracy has not risen above {best['accuracy']:.4f} of "
                f"step {best['step']:,} for {epochs:.1f} epochs (--early-stopping-epochs "
                f"{patience:g})",
            )
    return None
