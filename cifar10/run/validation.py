"""Validation: keeps the best checkpoint, and says whether a stopping criterion is reached.

Stopping criteria, --early-stopping-epochs and --stop-at-accuracy, are judged by the recorded
validations alone, whichever process made them, so that a run that is started again goes on judging
where it was.
"""

import math
from typing import Any, Callable, NamedTuple, Optional

import tensorflow.compat.v1 as tf

from cifar10.config.train_config import TrainConfig
from cifar10.errors import ConfigError
from cifar10.host.files import real
from cifar10.input.records import RecordSet
from cifar10.output import checkpoints, event_files
from cifar10.output.folders import VALIDATIONS
from cifar10.output.metrics import Metrics, rounded
from cifar10.schema import VALIDATION
from cifar10.step.params import ModelParams

_ROUNDING = 1e-6  # an accuracy of 0.9 is 0.89999998 in float32
_EPOCH_ROUNDING = 1e-5  # of the last epoch: two numbers with six significant digits


class KeepBest(tf.estimator.Exporter):
    """Records each validation, and keeps the checkpoint with the highest validation accuracy.

    Estimator calls `export` after each validation of `tf.estimator.train_and_evaluate`.

    Args:
      params: the parameters of the model_fn.
      metrics: the rows of the run; they get one for each validation.
      log: a function that prints a line.
    """

    name = "best"

    def __init__(self, params: ModelParams, metrics: Metrics, log: Callable[[str], None]) -> None:
        self._params, self._metrics, self._log = params, metrics, log
        config = params.config
        # Estimator writes a validation's events into the output folder, whatever --log-dir says.
        is_other = real(config.log_path) != real(config.output_path)
        folders = [config.output_path, *([config.log_path] if is_other else [])]
        self._folders = [tf.io.gfile.join(folder, VALIDATIONS) for folder in folders]

    def export(
        self,
        estimator: Any,
        export_path: str,
        checkpoint_path: str,
        eval_result: Any,
        is_the_final_export: bool,
    ) -> None:
        """Adds the row of a validation, and copies its checkpoint to best/ if it is the best."""
        step = int(eval_result["global_step"])
        if not self._is_new(step):
            return
        loss, accuracy = rounded(eval_result["cross_entropy"]), rounded(eval_result["accuracy"])
        # Finite weights may overflow: such a checkpoint is not one to keep, whatever its accuracy.
        is_best = math.isfinite(loss) and checkpoints.keep_if_best(
            self._params.config.output_path, checkpoint_path, step, accuracy
        )
        seen = checkpoints.read_counter(checkpoint_path, "examples_seen")
        row = {"epoch": seen / self._params.num_examples, "loss": loss, "accuracy": accuracy}
        # The curves come first: a checkpoint that has a row is not validated again.
        for folder in self._folders[1:]:
            curves = ("accuracy", "cross_entropy", "loss")
            event_files.add_row(folder, step, {name: float(eval_result[name]) for name in curves})
            event_files.writer(folder).flush()
        self._metrics.add(VALIDATION, step, **row, seconds=self._metrics.seconds)
        best = " (best so far)" if is_best else ""
        self._log(f"validation accuracy {accuracy:.4f} at step {step:,}{best}")

    def validate(
        self,
        estimator: Any,
        spec: Any,
        checkpoint: Optional[str],
        may_record: Callable[[], bool] = lambda: True,
    ) -> None:
        """Validates a checkpoint that has no row, whatever else a killed process has left of that.

        Args:
          estimator: the Estimator that evaluates.
          spec: the EvalSpec of the validation images.
          checkpoint: the checkpoint's path; None and the checkpoint of step 0 are not validated.
          may_record: function that returns, after the validation, whether it is recorded.

        Raises:
          DataError: records are damaged.
          Stopped: a signal arrived.
        """
        step = checkpoints.read_counter(checkpoint, "global_step")
        if checkpoint is None or not self._is_new(step):
            return
        self.take_back(step)
        result = estimator.evaluate(spec.input_fn, None, spec.hooks, checkpoint, spec.name)
        if may_record():
            self.export(estimator, "", checkpoint, result, False)

    def take_back(self, first_step: int) -> None:
        """Makes TensorBoard drop the validations of `first_step` and of later steps."""
        for folder in self._folders:
            event_files.take_back(folder, first_step)

    def _is_new(self, step: int) -> bool:
        """Returns whether a checkpoint of this step is to be validated, and has not been."""
        return step not in {0, *(row["step"] for row in self._metrics.of(VALIDATION))}


class Ending(NamedTuple):
    """Why training ends before its last step.

    Attributes:
      status: the status of result.json.
      line: the line that says so.
    """

    status: str
    line: str


class StoppingCriteria(tf.train.SessionRunHook):
    """Ends training once the recorded validations reach a stopping criterion.

    It comes after the hook that saves, so that the weights of the chief's own validation are the
    last ones of a process that trains alone or synchronously.

    Args:
      config: the settings.
      saved_step: function that returns the global step of the newest checkpoint.
      log: a function that prints a line.

    Attributes:
      ending: why training ends; None: it goes on.
    """

    def __init__(
        self, config: TrainConfig, saved_step: Callable[[], int], log: Callable[[str], None]
    ) -> None:
        self._config, self._saved_step, self._log = config, saved_step, log
        self._judged_step = 0
        self.ending: Optional[Ending] = None

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """Judges the validations if a checkpoint has just been saved."""
        if self._saved_step() != self._judged_step:
            self._judged_step = self._saved_step()
            self.judge()
            if self.ending:
                run_context.request_stop()

    def judge(self) -> None:
        """Judges the validations up to the newest checkpoint; the first time, logs why it ends.

        Raises:
          DamagedError: a file of metrics is damaged, so no criterion could be judged any more.
        """
        before = self.ending
        try:
            step = checkpoints.latest_step(self._config.output_path)
            self.ending = ended_before(self._config, step)
        except tf.errors.OpError as error:  # Such as a stale handle: a file has been replaced.
            self._log(
                f"the validations cannot be read now ({error.message}); the next checkpoint is "
                "judged by all of them"
            )
        if self.ending and not before:
            self._log(self.ending.line)


def check_criteria(config: TrainConfig, records: RecordSet) -> None:
    """Raises ConfigError if a stopping criterion is set, but nothing can be validated."""
    criteria = (config.early_stopping_epochs, config.stop_at_accuracy)
    if criteria != (None, None) and not records.has_validation:
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
    rows = Metrics(config.output_path, last_step=step).of(VALIDATION)
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
