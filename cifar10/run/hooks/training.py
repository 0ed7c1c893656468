"""The hook of training: all that a trainer does between two steps, in the order of these lines."""

import contextlib
import math
import posixpath
import threading
import time
from typing import Any, Callable, Optional

import tensorflow as tf2
import tensorflow.compat.v1 as tf

from cifar10.errors import ConfigError, TrainingError, TrainingOver
from cifar10.host import activity
from cifar10.host.process import Stay, StopRequest
from cifar10.output import checkpoints
from cifar10.output import report as report_page
from cifar10.run.goals import Goals
from cifar10.run.hooks import summaries
from cifar10.run.hooks.progress import MetricRows, Progress
from cifar10.run.job import Job, checkpoint_steps
from cifar10.run.watchdog import StepProbe
from cifar10.schema import TRAIN
from cifar10.step.training_step import StepReport, StepTensors

_NO_WINDOW = (math.inf, math.inf)  # the first and the last step to profile


def check_window(window: Optional[tuple[int, int]], total_steps: int) -> None:
    """Raises ConfigError if training ends before the last step of --profile-steps."""
    if window is not None and window[1] > total_steps:
        raise ConfigError(
            f"--profile-steps must end at the last step or before, got {window[0]}:{window[1]}; "
            f"training ends at step {total_steps:,}"
        )


class TrainingHook(tf.train.SessionRunHook):
    """What each trainer does between two steps; `WorkerHook` and `ChiefHook` add what is theirs.

    Args:
      job: the job that is trained.
      stop: knows whether a signal has arrived.
      probe: tells the watchdog what the main thread does.
      progress: shows the steps.
    """

    def __init__(self, job: Job, stop: StopRequest, probe: StepProbe, progress: Progress) -> None:
        self.job, self.stop, self.total_steps = job, stop, float(job.total_steps)
        self._probe, self._progress = probe, progress

    def begin(self) -> None:
        """Finds the tensors of the graph that is about to run; raises Stopped after a signal."""
        self.stop.check()
        self.tensors = StepTensors.find()
        self._global_step = tf.train.get_global_step()

    def after_create_session(self, session: Any, coord: Any) -> None:
        """Begins to measure anew, since a session begins from a checkpoint."""
        self._probe.begin(session, self.tensors.standing)
        self._progress.begin()

    def before_run(self, run_context: Any) -> Any:
        """Requests the step's report."""
        self._probe.step_begins()
        self._progress.step_begins()
        return tf.train.SessionRunArgs(self.tensors.report)

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """Looks at the step's report: at its loss, whom to show it, and whether training ends."""
        self._probe.step_ends()
        self.report = report = StepReport.of(*run_values.results)
        if not math.isfinite(report.loss):
            raise TrainingError(self._describe_loss(report))
        self._progress.add(report)
        if report.over or report.step >= self.total_steps or self.is_ending():
            run_context.request_stop()

    def end(self, session: Any) -> None:
        """Keeps the figures of the last steps."""
        self._progress.finish()

    def is_ending(self) -> bool:
        """Returns whether training ends before its last step."""
        return self.stop.requested

    def _describe_loss(self, report: StepReport) -> str:
        """Says of which step and images the loss of this process's batch is not finite.

        Estimator's own hook, which comes later, names neither, and accepts an infinite loss.
        """
        first = max(1, report.examples_seen - self.job.params.examples_per_step + 1)
        return (
            f"the loss is {report.loss} at step {report.step:,}, with learning rate "
            f"{report.learning_rate:.3g}, on the images {first:,} to {report.examples_seen:,} of "
            f"this training; {_nothing_was_saved(self.job.config.output_place)}"
        )


class WorkerHook(TrainingHook):
    """Trains with the chief, and ends when the chief ends training.

    Args:
      job: the job that is trained.
      stop: knows whether a signal has arrived.
      probe: tells the watchdog what the main thread does.
      progress: shows the steps.
      stay: knows whether the chief still needs this worker's gradients after a signal; None: it
        does not.
      knows_last_step: whether this worker knows the last step even if training has begun before it.
        If not, since only the chief knows of steps with other numbers of images, the chief alone
        ends training.
    """

    def __init__(
        self,
        job: Job,
        stop: StopRequest,
        probe: StepProbe,
        progress: Progress,
        stay: Optional[Stay],
        knows_last_step: bool,
    ) -> None:
        super().__init__(job, stop, probe, progress)
        self._stay, self._knows_last_step = stay, knows_last_step

    def after_create_session(self, session: Any, coord: Any) -> None:
        """Raises TrainingOver if training is over, instead of taking another step."""
        super().after_create_session(session, coord)
        step, over = session.run((self._global_step, self.tensors.over))
        if step and not self._knows_last_step:
            self.total_steps = math.inf
        if over or step >= self.total_steps:
            raise TrainingOver(int(step))

    def is_ending(self) -> bool:
        """Returns whether a signal has arrived and the chief needs this worker no more."""
        return self.stop.requested if self._stay is None else self._stay.is_over


class ChiefHook(TrainingHook):
    """Measures, records, saves, validates and ends the training of all.

    Args:
      job: the job that is trained.
      stop: knows whether a signal has arrived.
      probe: tells the watchdog what the main thread does.
      progress: shows the steps.
      goals: says whether the validations end training.
      deadline: the time at which training ends (`time.monotonic`), in seconds.
      check_owner: a function that is called before a checkpoint is written; it raises an exception
        if this process must not.
      last: a function that is called after the last checkpoint, before its validation.

    Attributes:
      saver: the hook that writes the checkpoints; it comes after this hook.
      is_late: whether the deadline has ended training.
      step: the global step after the last step of this process.
    """

    def __init__(
        self,
        job: Job,
        stop: StopRequest,
        probe: StepProbe,
        progress: Progress,
        goals: Goals,
        deadline: float = math.inf,
        check_owner: Callable[[], None] = lambda: None,
        last: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__(job, stop, probe, progress)
        self._goals, self._deadline = goals, deadline
        self._check_owner, self._last = check_owner, last
        self.is_late, self._has_loaded, self._profiled_from = False, False, 0
        self._at_end = self._is_told = False
        self._place, self._folder = job.config.output_place, job.config.log_folder(TRAIN)
        self._metrics = MetricRows(progress, job)
        self._window: tuple[float, float] = job.config.profile_window or _NO_WINDOW
        steps = checkpoint_steps(job.config, job.params)
        self.saver = _SaverHook(self._place, self._folder, steps, _Saving(self), goals)

    def after_create_session(self, session: Any, coord: Any) -> None:
        """Takes back what was measured after the checkpoint; those steps are taken again.

        Its step is the checkpoint's, since other replicas may have taken steps since its restore.
        In a cluster that has lost a parameter server, a process begins another session.
        """
        super().after_create_session(session, coord)
        saved = checkpoints.latest_step(self._place)
        self._progress.history.forget_after(saved)
        summaries.take_back(self._folder, saved + 1)
        self._samples: Optional[tuple[int, Any]] = None  # (step, images) until they are shown
        self._begins = True

    def before_run(self, run_context: Any) -> Any:
        """Requests the step's report and a sample of its images."""
        # Where other trainers take all steps of the window, the next one is profiled.
        if self.step + 1 >= self._window[0] and not self._profiled_from:
            tf2.profiler.experimental.start(self._folder)
            self._profiled_from = self.step + 1
        if not self._has_loaded:
            # In the first step, TensorFlow optimises its graph for a second without Python's lock.
            threading.Thread(target=report_page.load, name="loading").start()
            self._has_loaded = True
        super().before_run(run_context)
        return tf.train.SessionRunArgs((self.tensors.report, self.tensors.samples))

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """Measures and records the step."""
        report, samples = run_values.results
        super().after_run(run_context, run_values._replace(results=report))
        self.step = self.report.step
        self._metrics.add(self.report)
        self._samples = (self.step, samples)
        if self.step == 1:
            self._show_samples()
        if self.step >= self._window[1]:
            self._end_profile()

    def is_ending(self) -> bool:
        """Returns whether a signal, the deadline or a goal ends training."""
        self.is_late = self.is_late or time.monotonic() >= self._deadline
        return self._goals.are_reached() or self.is_late or super().is_ending()

    def end(self, session: Any) -> None:
        """Tells all replicas that training is over, before the last checkpoint is saved.

        After a signal, replicas are told nothing, and the weights of a run that is to continue stay
        as they are. Otherwise, if a time limit or an evaluator's validation ends a run early, its
        last checkpoint has the final weights. If a validation of this process ends it, that is the
        one of the checkpoint that was validated.
        """
        is_stopped = self.stop.requested  # Read once, so that all of this goes by the same answer.
        if not is_stopped:
            # A parameter server that has ended knew that training is over, as all tasks then do.
            with contextlib.suppress(tf.errors.UnavailableError, tf.errors.AbortedError):
                session.run(self.tensors.end_all)
        super().end(session)
        self._metrics.finish()
        self._end_profile()
        # A run that a goal has ended does not go on later, even after a signal.
        if (self._goals.has_evaluator and self._goals.ending) or (self.is_late and not is_stopped):
            session.run(self.tensors.early_end)  # Replaces the weights by the final ones.
        self._at_end = True

    def before_save(self, session: Any, step: int) -> None:
        """Writes what was measured up to a checkpoint, before it is written.

        So a run that is killed after that does not repeat these steps.

        Raises:
          TrainingError: a weight or a statistic is NaN or infinite, so nothing is saved. A finite
            loss does not show that the update after it was finite.
        """
        self.job.activity.begin(activity.SAVING)
        if not session.run(self.tensors.are_finite):
            raise TrainingError(
                f"a weight is NaN or infinite at step {step:,}; {_nothing_was_saved(self._place)}"
            )
        self._check_owner()
        self._show_samples()
        self._progress.history.save()
        summaries.writer(self._folder).flush()

    def after_save(self, step: int) -> None:
        """Stops the clock; raises Stopped after a signal, since the checkpoint is complete."""
        self.job.activity.begin(activity.BETWEEN)
        self._progress.clock.pause()
        if self._begins:
            self._begins, self.step = False, step
            self._metrics.begin(step)
            if step >= self._window[1] and not self._profiled_from:
                self._window = _NO_WINDOW
        self.stop.check()
        if self._at_end:
            self.say_the_end()

    def say_the_end(self) -> None:
        """Says once that the last checkpoint is written; raises Stopped after a signal."""
        self.stop.check()
        if not self._is_told:
            self._is_told = True
            self._last()

    def _show_samples(self) -> None:
        """Shows the first images of the last step's batch, unless they are shown already."""
        if self._samples is not None:
            summaries.add_samples(self._folder, *self._samples)
            self._samples = None

    def _end_profile(self) -> None:
        """Writes what was recorded of --profile-steps."""
        if self._profiled_from:
            tf2.profiler.experimental.stop()
            self._progress.say(
                f"profile of steps {self._profiled_from:,} to {self.step:,}: "
                f"{self._folder}/plugins/profile, for TensorBoard's profile plugin"
            )
            self._profiled_from, self._window = 0, _NO_WINDOW


class _SaverHook(tf.train.CheckpointSaverHook):
    """Saves as Estimator's own hook does, but the last checkpoint at the end of the session.

    So its validation comes after the last use of the parameter servers, and no task waits for it.

    Args:
      folder: the folder for the checkpoints.
      log_folder: the folder for TensorBoard's graph and marks of checkpoints.
      save_steps: the number of steps between two checkpoints.
      listener: is told of each checkpoint, before Estimator's listener validates it.
      goals: says whether a validation of this process ends training.
    """

    def __init__(
        self, folder: str, log_folder: str, save_steps: int, listener: "_Saving", goals: Goals
    ) -> None:
        saver: Any = _SaverInFolder(folder)
        super().__init__(
            log_folder,
            save_steps=save_steps,
            saver=saver,
            listeners=[listener],
            save_graph_def=False,
        )
        self._goals = goals

    def before_run(self, run_context: Any) -> Any:
        """Requests the step's report, which parameter servers send anyway, for the global step."""
        return tf.train.SessionRunArgs(StepTensors.find().report)

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """Saves and validates a checkpoint that is due, unless training is to end."""
        if not run_context.stop_requested:
            before = StepReport.of(*run_values.results).step - 1  # This step follows it.
            super().after_run(run_context, run_values._replace(results=before))
            if not self._goals.has_evaluator and self._goals.are_reached():
                run_context.request_stop()


class _SaverInFolder:
    """The graph's tf.train.Saver, for a hook that has another folder for TensorBoard's files."""

    def __init__(self, folder: str) -> None:
        self._folder = folder

    @property
    def saver_def(self) -> Any:
        """What TensorFlow writes of the saver beside the graph."""
        return self._graphs_own().saver_def

    def save(self, session: Any, path: str, global_step: int, write_meta_graph: bool) -> None:
        """Writes a checkpoint of the name that `path` has, into the folder."""
        place = tf.io.gfile.join(self._folder, posixpath.basename(path))
        self._graphs_own().save(session, place, global_step, write_meta_graph=write_meta_graph)

    def _graphs_own(self) -> tf.train.Saver:
        (saver,) = tf.get_collection(tf.GraphKeys.SAVERS)
        return saver


class _Saving(tf.train.CheckpointSaverListener):
    """Tells the chief's hook of each checkpoint, by Estimator's interface."""

    def __init__(self, hook: ChiefHook) -> None:
        self._hook = hook

    def before_save(self, session: Any, global_step_value: int) -> None:
        """Comes before each checkpoint; an exception keeps it from being written."""
        self._hook.before_save(session, int(global_step_value))

    def after_save(self, session: Any, global_step_value: int) -> None:
        """Comes after each checkpoint, before its validation."""
        self._hook.after_save(int(global_step_value))

    def end(self, session: Any, global_step_value: int) -> None:
        """Comes at the end, also if a validation ended training and nothing is saved after it."""
        self._hook.say_the_end()


def _nothing_was_saved(output_dir: str) -> str:
    """Returns the end of an error about values that are not finite: what the user can do."""
    step = checkpoints.latest_step(output_dir)
    return (
        f"nothing of that was saved, and the next start continues from step {step:,}: give it a "
        "lower --learning-rate, or train anew with --warmup-epochs 1 and another --output-dir"
    )
