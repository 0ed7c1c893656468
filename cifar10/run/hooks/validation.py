"""Validates checkpoints: keeps the best one, the history and TensorBoard's images."""

import math
from typing import Any, Callable, Optional

import tensorflow.compat.v1 as tf

from cifar10.host import activity
from cifar10.host.activity import Activity
from cifar10.host.process import StopRequest
from cifar10.output import checkpoints
from cifar10.output.history import History, rounded
from cifar10.run.hooks import summaries
from cifar10.run.job import Job, evaluation_input
from cifar10.run.tf_errors import clear_errors
from cifar10.schema import VALIDATION
from cifar10.step import model_fn


class EvaluationHook(tf.train.SessionRunHook):
    """Notes each batch of an evaluation, and ends the evaluation when a signal arrives.

    Args:
      noted: what the main thread does.
      stop: knows whether a signal has arrived.
    """

    def __init__(self, noted: Activity, stop: StopRequest) -> None:
        self._activity, self._stop = noted, stop

    def begin(self) -> None:
        """Notes that the evaluation begins."""
        self._activity.begin(activity.EVALUATION)

    def before_run(self, run_context: Any) -> None:
        """Raises Stopped if a signal has arrived; there is nothing to save."""
        self._stop.check()

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """Notes that a batch has ended."""
        self._activity.begin(activity.EVALUATION)


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
            # A validation is complete when the history has its row. Without one, the latest
            # checkpoint is validated again, whatever else a killed process has left of that.
            step = checkpoints.latest_step(job.config.output_place)
            is_done = any(row["step"] == step for row in history.validation)
            first = step + 1 if is_done else step
            summaries.take_back(job.config.log_folder(VALIDATION), first)

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
                [EvaluationHook(job.activity, stop)],
                checkpoint,
                VALIDATION,
            )
        if may_record():
            self.export(None, "", checkpoint, result, False)
        return True

    def export(
        self,
        estimator: Any,
        export_path: str,
        checkpoint_path: str,
        eval_result: dict[str, Any],
        is_the_final_export: bool,
    ) -> None:
        """Records one validation and keeps the checkpoint if it is the best."""
        config, history, step = self._job.config, self._history, int(eval_result["global_step"])
        loss, accuracy = rounded(eval_result["cross_entropy"]), rounded(eval_result["accuracy"])
        # Finite weights may overflow: such a checkpoint is not one to keep, whatever its accuracy.
        is_best = math.isfinite(loss) and checkpoints.keep_if_best(
            config.output_place, checkpoint_path, step, accuracy
        )
        seen = checkpoints.read_counter(checkpoint_path, "examples_seen")
        figures = {
            "epoch": rounded(seen / self._job.num_examples),
            "loss": loss,
            "accuracy": accuracy,
            "seconds": self._seconds(step),
        }
        before = [row for row in history.validation if row["step"] < step]
        history.validation = [*before, {"step": step, **figures}]
        history.metrics.add(VALIDATION, step, figures)
        folder, counts = config.log_folder(VALIDATION), eval_result[model_fn.CONFUSION]
        summaries.add_confusion_matrix(folder, step, counts, self._job.class_names)
        history.save()
        best = " (best so far)" if is_best else ""
        self._say(f"validation accuracy {accuracy:.4f} at step {step:,}{best}")
