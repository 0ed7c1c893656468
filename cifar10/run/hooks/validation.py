"""Records each validation: keeps the best checkpoint, the history and TensorBoard's images."""

import math
from typing import Any, Callable, Optional

import tensorflow.compat.v1 as tf

from cifar10.host.signals import StopRequest
from cifar10.output import checkpoints
from cifar10.output.digits import rounded
from cifar10.output.history import History
from cifar10.run.hooks import summaries
from cifar10.run.hooks.step_probe import EvaluationHook
from cifar10.run.job import Job, evaluation_input
from cifar10.run.tf_errors import clear_errors
from cifar10.schema import VALIDATION
from cifar10.step import model_fn


class ValidationRecorder(tf.estimator.Exporter):
    """Records each validation, as an exporter that Estimator calls after an evaluation.

    Args:
      job: the job that is trained.
      history: the history that gets a row per validation.
      say: a function that prints a line.
      seconds: a function that returns the seconds of training up to a step; None: those of
        `history`.
    """

    def __init__(
        self,
        job: Job,
        history: History,
        say: Callable[[str], None],
        seconds: Optional[Callable[[int], float]] = None,
    ) -> None:
        self._job, self._history, self._say = job, history, say
        self._seconds = seconds or (lambda step: history.seconds)
        if job.validates:
            self._take_back_lost_ones()

    @property
    def name(self) -> str:
        """The exporter's name for Estimator."""
        return "validation"

    def spec(self, stop: StopRequest) -> Any:
        """Returns the tf.estimator.EvalSpec by which Estimator validates after each checkpoint."""
        return tf.estimator.EvalSpec(
            lambda: evaluation_input(self._job, VALIDATION),
            steps=None,
            name=VALIDATION,
            hooks=[EvaluationHook(self._job.activity, stop)],
            exporters=[self],
            start_delay_secs=0,
            throttle_secs=0,
        )

    def export(
        self,
        estimator: Any,
        export_path: str,
        checkpoint_path: str,
        eval_result: dict[str, Any],
        is_the_final_export: bool,
    ) -> None:
        """Records one validation and keeps the checkpoint if it is the best."""
        step, accuracy = int(eval_result["global_step"]), rounded(eval_result["accuracy"])
        config, seen = self._job.config, checkpoints.read_counter(checkpoint_path, "examples_seen")
        loss = rounded(eval_result["cross_entropy"])
        # Finite weights may overflow: such a checkpoint is not one to keep, whatever its accuracy.
        is_best = math.isfinite(loss) and checkpoints.keep_if_best(
            config.output_place, checkpoint_path, step, accuracy
        )
        figures = {
            "epoch": rounded(seen / self._job.num_examples),
            "loss": loss,
            "accuracy": accuracy,
            "seconds": self._seconds(step),
        }
        before = [row for row in self._history.validation if row["step"] < step]
        self._history.validation = [*before, {"step": step, **figures}]
        self._history.metrics.add(VALIDATION, step, figures)
        summaries.add_confusion_matrix(
            config.log_folder(VALIDATION),
            step,
            eval_result[model_fn.CONFUSION],
            self._job.class_names,
        )
        self._history.save()
        best = " (best so far)" if is_best else ""
        self._say(f"validation accuracy {accuracy:.4f} at step {step:,}{best}")

    def validate_if_missing(
        self,
        checkpoint: Optional[str],
        stop: StopRequest,
        may_record: Callable[[], bool] = lambda: True,
    ) -> bool:
        """Validates a checkpoint that has no row yet, outside of Estimator's training loop.

        Args:
          checkpoint: the checkpoint's path; None and the checkpoint of step 0 are not validated.
          stop: knows whether a signal has arrived.
          may_record: function that returns, after the validation, whether it is recorded.

        Returns:
          Whether this call validated the checkpoint.
        """
        job = self._job
        step = checkpoints.read_counter(checkpoint, "global_step")
        if checkpoint is None or step in {0, *(row["step"] for row in self._history.validation)}:
            return False
        with clear_errors(job.config):
            result = job.evaluation.evaluate(
                lambda: evaluation_input(job, VALIDATION),
                hooks=[EvaluationHook(job.activity, stop)],
                checkpoint_path=checkpoint,
                name=VALIDATION,
            )
        if may_record():
            self.export(None, "", checkpoint, result, False)
        return True

    def _take_back_lost_ones(self) -> None:
        """Makes TensorBoard drop the validations that are about to be repeated.

        A validation is complete when the history has its row. Without a row, the latest checkpoint
        is validated again, whatever else a killed process has left of that validation.
        """
        config = self._job.config
        step = checkpoints.latest_step(config.output_place)
        is_done = any(row["step"] == step for row in self._history.validation)
        summaries.take_back(config.log_folder(VALIDATION), step + 1 if is_done else step)
