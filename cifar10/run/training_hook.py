"""The hook of training: what a trainer measures and records between two steps, and its end."""

import contextlib
import dataclasses
import math
import time
from typing import Any, Callable, Optional

import numpy as np
import tensorflow as tf2
import tensorflow.compat.v1 as tf

from cifar10.errors import ConfigError, TrainingError, TrainingOver
from cifar10.host.process import StopRequest
from cifar10.output import checkpoints
from cifar10.output.event_files import add_picture
from cifar10.output.training_progress import TrainingProgress
from cifar10.schema import TRAIN
from cifar10.step.params import ModelParams
from cifar10.step.training_step import StepReport, StepTensors


def check_window(window: Optional[tuple[int, int]], total_steps: int) -> None:
    """Raises ConfigError if training ends before the last step of --profile-steps."""
    if window is not None and window[1] > total_steps:
        raise ConfigError(
            f"--profile-steps must end at the last step or before, got {window[0]}:{window[1]}; "
            f"training ends at step {total_steps:,}"
        )


@dataclasses.dataclass(eq=False)
class TrainingHook(tf.train.SessionRunHook):
    """What each trainer does between two steps; `WorkerHook` and `ChiefHook` add what is theirs.

    Attributes:
      params: the parameters of the model_fn.
      stop: knows whether a signal has arrived.
      progress: shows the steps.
    """

    params: ModelParams
    stop: StopRequest
    progress: TrainingProgress

    def begin(self) -> None:
        """Finds the tensors of the graph that is about to run."""
        self.tensors, self._last_step = StepTensors.find(), float(self.params.total_steps)

    def after_create_session(self, session: Any, coord: Any) -> None:
        """Begins to measure anew, since a session begins from a checkpoint."""
        self.progress.begin()

    def before_run(self, run_context: Any) -> Any:
        """Requests the step's report."""
        self.progress.step_begins()
        return tf.train.SessionRunArgs(self.tensors.report)

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """Looks at the step's report: at its loss, whom to show it, and whether training ends."""
        self.report = report = StepReport.of(*run_values.results)
        # Estimator's own hook, which comes later, names no step and accepts an infinite loss.
        if not math.isfinite(report.loss):
            first = max(1, report.examples_seen - self.params.examples_per_step + 1)
            raise _diverged(
                f"the loss is {report.loss} at step {report.step:,}, with learning rate "
                f"{report.learning_rate:.3g}, on the images {first:,} to {report.examples_seen:,} "
                "of this training",
                self.last_checkpoint(),
            )
        self.progress.add(report)
        if report.over or report.step >= self._last_step or self.is_past_end():
            run_context.request_stop()
            self.progress.finish()  # Not only in `end`, which comes after a validation.

    def end(self, session: Any) -> None:
        """Keeps the metrics of the last steps."""
        self.progress.finish()

    def last_checkpoint(self) -> str:
        """Describes from what the next start continues; only the chief knows the step."""
        return "the chief's last checkpoint"

    def is_past_end(self) -> bool:
        """Returns whether training ends before a last step: by a deadline or a number of images."""
        raise NotImplementedError


class WorkerHook(TrainingHook):
    """Trains with the chief, and ends when the chief ends training.

    A worker that counts epochs and joins later does not know the last step: earlier steps may have
    had other numbers of images or, in fp16, images without a step. A synchronous chief would wait
    in vain for a worker that left too early, so the chief ends its training. An asynchronous worker
    ends when all images have been seen: the chief may be busy with a validation.
    """

    def after_create_session(self, session: Any, coord: Any) -> None:
        """Raises TrainingOver if training is over, instead of taking another step."""
        super().after_create_session(session, coord)
        step, over = session.run((tf.train.get_global_step(session.graph), self.tensors.over))
        if step and self.params.config.train_epochs is not None:
            self._last_step = math.inf
        if over or step >= self._last_step:
            raise TrainingOver(int(step))

    def is_past_end(self) -> bool:
        """Returns whether an asynchronous worker has seen all images of its epochs."""
        config = self.params.config
        if config.sync or config.train_epochs is None:
            return False
        return bool(self.report.examples_seen >= self.params.total_examples)


@dataclasses.dataclass(eq=False)
class ChiefHook(TrainingHook):
    """Measures and records the training of all, and ends it; `Saving` calls it at checkpoints.

    Attributes:
      deadline: the time at which training ends (`time.monotonic`), in seconds.
      take_back: function that makes TensorBoard drop the validations from a step on.
      status: how training ends: the status of result.json.
      step: the global step after the last step of this process.
      saved_step: the global step of the newest checkpoint.
    """

    deadline: float = math.inf
    take_back: Callable[[int], None] = lambda first_step: None
    status: str = "completed"

    def __post_init__(self) -> None:
        """Derives what the settings say of profiling."""
        config = self.params.config
        self._output_dir, self._folder = config.output_path, config.log_folder(TRAIN)
        self._window, self._profiled_from = config.profile_window or (0, 0), 0

    def after_create_session(self, session: Any, coord: Any) -> None:
        """Takes back what was measured after the checkpoint; those steps are taken again.

        Its step is the checkpoint's, since other replicas may have taken steps since its restore.
        In a cluster that has lost a parameter server, a process begins another session.
        """
        super().after_create_session(session, coord)
        self._is_first = True
        self.step = self.saved_step = checkpoints.latest_step(self._output_dir)
        self.progress.go_on_after(self.step)
        self.take_back(self.step + 1)

    def before_run(self, run_context: Any) -> Any:
        """Requests the step's report, and begins --profile-steps."""
        # Where other trainers take the first steps of the window, the next one is profiled.
        if self._window[0] <= self.step + 1 <= self._window[1] and not self._profiled_from:
            tf2.profiler.experimental.start(self._folder)
            self._profiled_from = self.step + 1
        return super().before_run(run_context)

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """Measures and records the step."""
        super().after_run(run_context, run_values)
        self.step = self.report.step
        if self._is_first:
            self._is_first = False
            strip = np.hstack(self.report.samples)
            add_picture(self._folder, self.step, "augmented_samples", strip)
        if self.step >= self._window[1]:
            self._end_profile()

    def last_checkpoint(self) -> str:
        """Names the step of the newest checkpoint."""
        return f"step {checkpoints.latest_step(self._output_dir):,}"

    def is_past_end(self) -> bool:
        """Returns whether the deadline ends training, and notes it."""
        if time.monotonic() >= self.deadline:
            self.status = "stopped by --max-minutes"
            return True
        return False

    def end(self, session: Any) -> None:
        """Tells all replicas that training is over, unless a signal ends it."""
        if self.tensors.end_all is not None and not self.stop.requested:
            # A parameter server that has ended knew that training is over, as all tasks then do.
            with contextlib.suppress(tf.errors.UnavailableError, tf.errors.AbortedError):
                session.run(self.tensors.end_all)
        super().end(session)
        self._end_profile()

    def _end_profile(self) -> None:
        """Writes what was recorded of --profile-steps."""
        if self._profiled_from:
            tf2.profiler.experimental.stop()
            self.progress.log(
                f"profile of steps {self._profiled_from:,} to {self.step:,}: "
                f"{self._folder}/plugins/profile, for TensorBoard's profile plugin"
            )
            self._profiled_from = 0


class Saver(tf.train.CheckpointSaverHook):
    """A CheckpointSaverHook that takes the step from the chief's hook, which comes before it.

    The stock one reads the global step in each step, and again in a second run of the session: in a
    cluster, two more requests to a parameter server.

    Args:
      chief: the hook that measures training; `Saving` tells it of each checkpoint.
      save_steps: steps between two checkpoints.
      **settings: further arguments of CheckpointSaverHook.
    """

    def __init__(self, chief: ChiefHook, save_steps: int, **settings: Any) -> None:
        super().__init__(save_steps=save_steps, **settings)
        self._chief, self._save_steps = chief, save_steps

    def before_run(self, run_context: Any) -> None:
        """Requests nothing."""

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """Saves if a checkpoint is due."""
        if self._chief.step >= self._chief.saved_step + self._save_steps:
            super().after_run(run_context, run_values._replace(results=self._chief.step))


@dataclasses.dataclass(eq=False)
class Saving(tf.train.CheckpointSaverListener):
    """What comes before and after each checkpoint.

    Attributes:
      chief: the hook that measures training.
      check_owner: a function that is called before a checkpoint is written; it raises an exception
        if this process must not.
    """

    chief: ChiefHook
    check_owner: Callable[[], None] = lambda: None

    def before_save(self, session: Any, global_step_value: int) -> None:
        """Writes what was measured up to a checkpoint, before it is written.

        So a run that is killed after that does not repeat these steps.

        Raises:
          TrainingError: a weight or a statistic is NaN or infinite, so nothing is saved. A finite
            loss does not show that the update after it was finite.
        """
        chief = self.chief
        if not session.run(chief.tensors.are_finite):
            what = f"a weight is NaN or infinite at step {global_step_value:,}"
            raise _diverged(what, chief.last_checkpoint())
        self.check_owner()
        chief.progress.save()

    def after_save(self, session: Any, global_step_value: int) -> None:
        """Stops the clock."""
        chief = self.chief
        chief.saved_step = int(global_step_value)
        chief.progress.pause()


def _diverged(what: str, checkpoint: str) -> TrainingError:
    """Returns the error about a value that is not finite, which says what the user can do.

    Args:
      what: the value, and where it was seen.
      checkpoint: from what the next start continues.
    """
    return TrainingError(
        f"{what}; nothing of that was saved, and the next start continues from {checkpoint}: give "
        "it a lower --learning-rate, or train anew with --warmup-epochs 1 and another --output-dir"
    )
