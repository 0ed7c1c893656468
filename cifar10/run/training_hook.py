"""The hook of training: all that a trainer does between two steps, in the order of these lines."""

import contextlib
import dataclasses
import math
import posixpath
import threading
import time
from typing import Any, Callable, Optional

import numpy as np
import tensorflow as tf2
import tensorflow.compat.v1 as tf

from cifar10.errors import ConfigError, TrainingError, TrainingOver, UserError
from cifar10.host.activity import BETWEEN, FIRST_STEP, SAVING, START, STEP
from cifar10.host.process import Stay, StopRequest
from cifar10.output import checkpoints
from cifar10.output import report as report_page
from cifar10.output.event_files import add_picture, take_back
from cifar10.output.training_progress import Progress
from cifar10.run.job import Job, checkpoint_steps
from cifar10.run.validation import ended_before
from cifar10.schema import TRAIN, VALIDATION
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
      job: the job that is trained.
      stop: knows whether a signal has arrived.
      progress: shows the steps.
    """

    job: Job
    stop: StopRequest
    progress: Progress

    def begin(self) -> None:
        """Finds the tensors of the graph that is about to run; raises Stopped after a signal."""
        self.stop.check()
        self.tensors, self._last_step = StepTensors.find(), float(self.job.total_steps)

    def after_create_session(self, session: Any, coord: Any) -> None:
        """Begins to measure anew, since a session begins from a checkpoint."""
        self.job.watchdog.look_into(session, self.tensors.rounds)
        self.job.activity.begin(START)
        self._phase = FIRST_STEP
        self.progress.begin()

    def before_run(self, run_context: Any) -> Any:
        """Requests the step's report."""
        self.job.activity.begin(self._phase)
        self.progress.step_begins()
        return tf.train.SessionRunArgs(self.tensors.report)

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """Looks at the step's report: at its loss, whom to show it, and whether training ends."""
        self.job.activity.begin(BETWEEN)
        self._phase = STEP
        self.report = report = StepReport.of(*run_values.results)
        # Estimator's own hook, which comes later, names no step and accepts an infinite loss.
        if not math.isfinite(report.loss):
            first = max(1, report.examples_seen - self.job.params.examples_per_step + 1)
            raise _diverged(
                self.job,
                f"the loss is {report.loss} at step {report.step:,}, with learning rate "
                f"{report.learning_rate:.3g}, on the images {first:,} to {report.examples_seen:,} "
                "of this training",
            )
        self.progress.add(report)
        if report.over or report.step >= self._last_step or self.is_ending():
            run_context.request_stop()

    def end(self, session: Any) -> None:
        """Keeps the figures of the last steps."""
        self.progress.finish()

    def is_ending(self) -> bool:
        """Returns whether training ends before its last step."""
        return self.stop.requested


@dataclasses.dataclass(eq=False)
class WorkerHook(TrainingHook):
    """Trains with the chief, and ends when the chief ends training.

    Attributes:
      stay: knows whether the chief still needs this worker's gradients after a signal; None: it
        does not.
      knows_last_step: whether this worker knows the last step even if training has begun before it.
        If not, since only the chief knows of steps with other numbers of images, the chief alone
        ends training.
    """

    stay: Optional[Stay]
    knows_last_step: bool

    def after_create_session(self, session: Any, coord: Any) -> None:
        """Raises TrainingOver if training is over, instead of taking another step."""
        super().after_create_session(session, coord)
        step, over = session.run((tf.train.get_global_step(session.graph), self.tensors.over))
        if step and not self.knows_last_step:
            self._last_step = math.inf
        if over or step >= self._last_step:
            raise TrainingOver(int(step))

    def is_ending(self) -> bool:
        """Returns whether a signal has arrived and the chief needs this worker no more."""
        return self.stop.requested if self.stay is None else self.stay.is_over


@dataclasses.dataclass(eq=False)
class ChiefHook(TrainingHook):
    """Measures, records, saves, validates and ends the training of all.

    Attributes:
      deadline: the time at which training ends (`time.monotonic`), in seconds.
      check_owner: a function that is called before a checkpoint is written; it raises an exception
        if this process must not.
      validate: a function that validates the newest checkpoint.
      status: how training ends: the status of result.json.
      step: the global step after the last step of this process.
      saved_step: the global step of the newest checkpoint.
    """

    deadline: float = math.inf
    check_owner: Callable[[], None] = lambda: None
    validate: Callable[[], None] = lambda: None
    status: str = "completed"

    def __post_init__(self) -> None:
        """Derives what the settings say of saving and profiling."""
        config = self.job.config
        self._place, self._folder = config.output_place, config.log_folder(TRAIN)
        self._save_steps = checkpoint_steps(config, self.job.params)
        self._window, self._profiled_from = config.profile_window or (0, 0), 0
        self._saver = tf.train.CheckpointSaverHook(
            self._folder,
            save_steps=1,  # `after_run` asks it only if a checkpoint is due.
            saver=_SaverInFolder(self._place),
            listeners=[_Saving(self)],
            save_graph_def=False,
        )

    def begin(self) -> None:
        """Finds the tensors of the graph, also for the saver."""
        super().begin()
        self._saver.begin()

    def after_create_session(self, session: Any, coord: Any) -> None:
        """Takes back what was measured after the checkpoint; those steps are taken again.

        Its step is the checkpoint's, since other replicas may have taken steps since its restore.
        In a cluster that has lost a parameter server, a process begins another session.
        """
        super().after_create_session(session, coord)
        self.step = self.saved_step = checkpoints.latest_step(self._place)
        self.progress.go_on_after(self.step)
        if self.job.validates:
            take_back(self.job.config.log_folder(VALIDATION), self.step + 1)
        self._saver.after_create_session(session, coord)

    def before_run(self, run_context: Any) -> Any:
        """Requests the step's report, and begins --profile-steps."""
        if self._phase == FIRST_STEP:
            # In it, TensorFlow optimises its graph for a second without Python's lock.
            threading.Thread(target=report_page.load, name="loading").start()
        # Where other trainers take the first steps of the window, the next one is profiled.
        if self._window[0] <= self.step + 1 <= self._window[1] and not self._profiled_from:
            tf2.profiler.experimental.start(self._folder)
            self._profiled_from = self.step + 1
        return super().before_run(run_context)

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """Measures and records the step; saves and validates if that is due."""
        is_first = self._phase == FIRST_STEP
        super().after_run(run_context, run_values)
        self.step = self.report.step
        if is_first:
            strip = np.hstack(self.report.samples)
            add_picture(self._folder, self.step, "augmented_samples", strip)
        if self.step >= self._window[1]:
            self._end_profile()
        if not run_context.stop_requested and self.step >= self.saved_step + self._save_steps:
            self._saver.after_run(run_context, run_values._replace(results=self.step))
            if self.job.validates:
                self.validate()
            if self.judge():
                run_context.request_stop()

    def is_ending(self) -> bool:
        """Returns whether a signal or the deadline ends training."""
        if time.monotonic() >= self.deadline:
            self.status = "stopped by --max-minutes"
            return True
        return super().is_ending()

    def end(self, session: Any) -> None:
        """Tells all replicas that training is over, then saves the last checkpoint.

        After a signal, they are told nothing. The checkpoint is validated later, since that needs
        no parameter server.
        """
        if not self.stop.requested:
            # A parameter server that has ended knew that training is over, as all tasks then do.
            with contextlib.suppress(tf.errors.UnavailableError, tf.errors.AbortedError):
                session.run(self.tensors.end_all)
        super().end(session)
        self._end_profile()
        self._saver.end(session)

    def judge(self) -> bool:
        """Returns whether the validations up to the newest checkpoint end training; says so once.

        Its weights are the last ones then.
        """
        ending = None
        # An evaluator replaces its file meanwhile; the next validation is judged by all rows.
        with contextlib.suppress(UserError, tf.errors.OpError):
            ending = ended_before(self.job.config, checkpoints.latest_step(self._place))
        if ending and ending.status != self.status:
            self.status = ending.status
            self.progress.say(ending.line)
        return ending is not None

    def _end_profile(self) -> None:
        """Writes what was recorded of --profile-steps."""
        if self._profiled_from:
            tf2.profiler.experimental.stop()
            self.progress.say(
                f"profile of steps {self._profiled_from:,} to {self.step:,}: "
                f"{self._folder}/plugins/profile, for TensorBoard's profile plugin"
            )
            self._profiled_from = 0


class _Saving(tf.train.CheckpointSaverListener):
    """What comes before and after each checkpoint."""

    def __init__(self, chief: ChiefHook) -> None:
        self._chief = chief

    def before_save(self, session: Any, global_step_value: int) -> None:
        """Writes what was measured up to a checkpoint, before it is written.

        So a run that is killed after that does not repeat these steps.

        Raises:
          TrainingError: a weight or a statistic is NaN or infinite, so nothing is saved. A finite
            loss does not show that the update after it was finite.
        """
        chief = self._chief
        chief.job.activity.begin(SAVING)
        if not session.run(chief.tensors.are_finite):
            what = f"a weight is NaN or infinite at step {global_step_value:,}"
            raise _diverged(chief.job, what)
        chief.check_owner()
        chief.progress.save()

    def after_save(self, session: Any, global_step_value: int) -> None:
        """Stops the clock; raises Stopped after a signal, since the checkpoint is complete."""
        chief = self._chief
        chief.saved_step = global_step_value
        chief.job.activity.begin(BETWEEN)
        chief.progress.pause()
        chief.stop.check()


class _SaverInFolder:
    """The graph's tf.train.Saver, for a hook that has another folder for TensorBoard's files."""

    def __init__(self, folder: str) -> None:
        self._folder = folder

    @property
    def saver_def(self) -> Any:
        """What TensorFlow writes of the saver beside the graph."""
        return tf.get_collection(tf.GraphKeys.SAVERS)[0].saver_def

    def save(self, session: Any, path: str, **settings: Any) -> None:
        """Writes a checkpoint of the name that `path` has, into the folder."""
        place = tf.io.gfile.join(self._folder, posixpath.basename(path))
        tf.get_collection(tf.GraphKeys.SAVERS)[0].save(session, place, **settings)


def _diverged(job: Job, what: str) -> TrainingError:
    """Returns the error about a value that is not finite, which says what the user can do."""
    step = checkpoints.latest_step(job.config.output_place)
    return TrainingError(
        f"{what}; nothing of that was saved, and the next start continues from step {step:,}: give "
        "it a lower --learning-rate, or train anew with --warmup-epochs 1 and another --output-dir"
    )
