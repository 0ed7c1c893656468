"""Ends training when the loss or the weights are NaN or infinite, before they are saved."""

import math
from typing import Any, Optional

import tensorflow.compat.v1 as tf

from cifar10.errors import TrainingError
from cifar10.output import checkpoints
from cifar10.run.job import Job
from cifar10.step import training_step
from cifar10.step.training_step import StepReport


class FiniteLossHook(tf.train.SessionRunHook):
    """Ends training when the loss of this process's batch is NaN or infinite.

    It names the step, its rate and its images. Estimator's own hook, which comes after this one,
    names none of them and accepts an infinite loss.

    Args:
      job: the job that is trained.

    Raises:
      TrainingError: in `after_run`, which leaves the session without a checkpoint.
    """

    def __init__(self, job: Job) -> None:
        self._job = job

    def begin(self) -> None:
        """Finds the tensors of the graph that is about to run."""
        loss = tf.get_default_graph().get_tensor_by_name(f"{training_step.LOSS}:0")
        self._fetches = [loss, training_step.report_tensor()]

    def before_run(self, run_context: Any) -> Any:
        """Requests loss and report of the step."""
        return tf.train.SessionRunArgs(self._fetches)

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """Raises TrainingError if the loss is not finite."""
        loss, numbers = run_values.results
        if math.isfinite(loss):
            return
        report, each = StepReport.of(numbers), self._job.params.examples_per_step
        first = max(1, report.examples_seen - each + 1)
        raise TrainingError(
            f"the loss is {float(loss)} at step {report.step:,}, with learning rate "
            f"{report.learning_rate:.3g}, on the images {first:,} to {report.examples_seen:,} of "
            f"this training; {_way_out(self._job)}"
        )


class FiniteWeightsListener(tf.train.CheckpointSaverListener):
    """Keeps weights and statistics that are NaN or infinite out of checkpoints.

    A finite loss does not show that the update after it was finite.

    Args:
      job: the job that is trained.

    Raises:
      TrainingError: in `before_save`, so that nothing is written.
    """

    def __init__(self, job: Job) -> None:
        self._job = job
        self._are_finite: Optional[Any] = None

    def begin(self) -> None:
        """Finds the ops of the graph that is about to run."""
        (self._are_finite,) = tf.get_collection(training_step.FINITE)

    def before_save(self, session: Any, global_step_value: int) -> None:
        """Raises TrainingError if a weight or a statistic is not finite."""
        if not session.run(self._are_finite):
            raise TrainingError(
                f"a weight is NaN or infinite at step {int(global_step_value):,}; "
                f"{_way_out(self._job)}"
            )


def _way_out(job: Job) -> str:
    step = checkpoints.latest_step(job.config.output_place)
    return (
        f"nothing of that was saved, and the next start continues from step {step:,}: give it a "
        "lower --learning-rate, or train anew with --warmup-epochs 1 and another --output-dir"
    )
