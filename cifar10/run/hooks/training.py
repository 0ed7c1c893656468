"""The hook of training: all that a trainer does between two steps, in the order of these lines."""

import contextlib
import math
import threading
import time
from typing import Any, Callable, Optional

import tensorflow.compat.v1 as tf

from cifar10.errors import TrainingError, TrainingOver
from cifar10.host.signals import Stay, StopRequest
from cifar10.output import checkpoints
from cifar10.output import report as report_page
from cifar10.run.hooks import summaries
from cifar10.run.hooks.profile import Profile
from cifar10.run.hooks.progress import Progress
from cifar10.run.hooks.saving import nothing_was_saved
from cifar10.run.hooks.step_probe import StepProbe
from cifar10.run.hooks.summaries import MetricRows
from cifar10.run.job import Job
from cifar10.schema import TRAIN
from cifar10.step import model_fn, training_step
from cifar10.step.training_step import StepReport


class TrainingHook(tf.train.SessionRunHook):
    """What each trainer does between two steps; `WorkerHook` and `ChiefHook` add what is theirs.

    Args:
      job: the job that is trained.
      stop: knows whether a signal has arrived.
      probe: tells other threads what the main thread does.
      progress: shows the steps.

    Attributes:
      job: the argument `job`.
      stop: the argument `stop`.
      total_steps: the global step at which this process ends training at the latest.
    """

    def __init__(self, job: Job, stop: StopRequest, probe: StepProbe, progress: Progress) -> None:
        self.job, self.stop, self.total_steps = job, stop, float(job.total_steps)
        self._probe, self._progress = probe, progress

    def begin(self) -> None:
        """Finds the tensors of the graph that is about to run; raises Stopped after a signal."""
        self.stop.check()
        self._probe.find(tf.get_default_graph())
        self._fetches = {"report": training_step.report_tensors()}
        self._global_step = tf.train.get_global_step()

    def after_create_session(self, session: Any, coord: Any) -> None:
        """Begins to measure anew, since a session begins from a checkpoint."""
        self._probe.begin(session)
        self._progress.begin()

    def before_run(self, run_context: Any) -> Any:
        """Requests the step's report."""
        self._probe.step_begins()
        self._progress.step_begins()
        return tf.train.SessionRunArgs(self._fetches)

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """Looks at the step's report: at its loss, whom to show it, and whether training ends."""
        self._probe.step_ends()
        report = StepReport.of(run_values.results["report"])
        self._require_finite(report)
        self._progress.add(report)
        self.after_step(report, run_values.results)
        if report.over or report.step >= self.total_steps or self.is_ending():
            run_context.request_stop()

    def end(self, session: Any) -> None:
        """Keeps the figures of the last steps."""
        self._progress.finish()

    def after_step(self, report: StepReport, results: dict[str, Any]) -> None:
        """Does what else is due after a step.

        Args:
          report: the step's report.
          results: the values of all that was fetched, by name.
        """

    def is_ending(self) -> bool:
        """Returns whether training ends before its last step."""
        return self.stop.requested

    def _require_finite(self, report: StepReport) -> None:
        """Raises TrainingError if the loss of this process's batch is NaN or infinite.

        The session then ends without a checkpoint. Estimator's own hook, which comes later, names
        neither the step nor the images, and accepts an infinite loss.
        """
        if math.isfinite(report.loss):
            return
        first = max(1, report.examples_seen - self.job.params.examples_per_step + 1)
        raise TrainingError(
            f"the loss is {report.loss} at step {report.step:,}, with learning rate "
            f"{report.learning_rate:.3g}, on the images {first:,} to {report.examples_seen:,} of "
            f"this training; {nothing_was_saved(self.job.config.output_place)}"
        )


class WorkerHook(TrainingHook):
    """Trains with the chief, and ends when the chief ends training.

    Args:
      job: the job that is trained.
      stop: knows whether a signal has arrived.
      probe: tells other threads what the main thread does.
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

    def begin(self) -> None:
        """Finds the tensors of the graph that is about to run."""
        super().begin()
        self._over = tf.get_default_graph().get_tensor_by_name(f"{training_step.OVER}:0")

    def after_create_session(self, session: Any, coord: Any) -> None:
        """Raises TrainingOver if training is over, instead of taking another step."""
        super().after_create_session(session, coord)
        step, over = session.run((self._global_step, self._over))
        if step and not self._knows_last_step:
            self.total_steps = math.inf
        if over or step >= self.total_steps:
            raise TrainingOver(int(step))

    def is_ending(self) -> bool:
        """Returns whether a signal has arrived and the chief needs this worker no more."""
        return self.stop.requested if self._stay is None else self._stay.is_over


class ChiefHook(TrainingHook):
    """Measures, keeps and ends the training of all.

    This hook runs before the one that saves, so the last checkpoint of a run that a time limit or
    an evaluator's validation ends contains the final weights. After a signal, the weights of a run
    that is to continue stay as they are.

    Args:
      job: the job that is trained.
      stop: knows whether a signal has arrived.
      probe: tells other threads what the main thread does.
      progress: shows the steps.
      deadline: the time at which training ends (`time.monotonic`), in seconds.
      is_enough: function that returns whether the validations of a separate evaluator have reached
        a goal; None: this process validates.

    Attributes:
      is_late: whether the deadline has ended training.
    """

    def __init__(
        self,
        job: Job,
        stop: StopRequest,
        probe: StepProbe,
        progress: Progress,
        deadline: float = math.inf,
        is_enough: Optional[Callable[[], bool]] = None,
    ) -> None:
        super().__init__(job, stop, probe, progress)
        self._deadline, self._is_enough = deadline, is_enough
        self.is_late = self._has_reached = False
        self._folder = job.config.log_folder(TRAIN)
        self._metrics = MetricRows(progress.history, progress.clock, job)
        self._profile = Profile(job.config.profile_window, self._folder, progress.say)
        self._has_loaded = False

    def begin(self) -> None:
        """Finds the tensors and ops of the graph that is about to run."""
        super().begin()
        graph = tf.get_default_graph()
        self._fetches["samples"] = graph.get_tensor_by_name(f"{model_fn.SAMPLES}:0")
        self._end_all = tf.get_collection(training_step.END_ALL)
        self._early_end = tf.get_collection(training_step.EARLY_END)

    def after_create_session(self, session: Any, coord: Any) -> None:
        """Takes back what was measured after the checkpoint; those steps are taken again.

        Its step is the checkpoint's, since other replicas may have taken steps since its restore.
        In a cluster that has lost a parameter server, a process begins another session.
        """
        super().after_create_session(session, coord)
        saved = checkpoints.latest_step(self.job.config.output_place)
        self._progress.history.forget_after(saved)
        summaries.take_back(self._folder, saved + 1)
        self._step = int(session.run(self._global_step))
        self._metrics.begin(self._step)
        self._samples: Optional[tuple[int, Any]] = None  # (step, images) until they are shown
        self._profile.begin(self._step)

    def before_run(self, run_context: Any) -> Any:
        """Requests the step's report and a sample of its images."""
        self._profile.step_begins(self._step)
        if not self._has_loaded:
            # In the first step, TensorFlow optimises its graph for a second without Python's lock.
            threading.Thread(target=report_page.load, name="loading").start()
            self._has_loaded = True
        return super().before_run(run_context)

    def after_step(self, report: StepReport, results: dict[str, Any]) -> None:
        """Measures and records the step."""
        self._step = report.step
        self._metrics.add(report)
        self._samples = (report.step, results["samples"])
        if report.step == 1:
            self._show_samples()
        self._profile.step_ends(report.step)

    def is_ending(self) -> bool:
        """Returns whether a signal, the deadline or an evaluator's validation ends training."""
        self.is_late = self.is_late or time.monotonic() >= self._deadline
        if self._is_enough:
            self._has_reached = self._has_reached or self._is_enough()
        return super().is_ending() or self.is_late or self._has_reached

    def end(self, session: Any) -> None:
        """Tells all replicas that training is over, unless a signal ends it, and keeps figures."""
        is_stopped = self.stop.requested  # Read once, so that all of this goes by the same answer.
        if not is_stopped:
            # A parameter server that has ended knew that training is over, as all tasks then do.
            with contextlib.suppress(tf.errors.UnavailableError, tf.errors.AbortedError):
                session.run(self._end_all)
        super().end(session)
        self._metrics.finish()
        self._profile.finish(self._step)
        # A run that a goal has ended does not go on later, even after a signal.
        if self._has_reached or (self.is_late and not is_stopped):
            session.run(self._early_end)  # Replaces the weights by the final ones.

    def keep(self) -> None:
        """Writes what was measured and seen to its files, before a checkpoint is written.

        So a run that is killed after the checkpoint does not repeat these steps.
        """
        self._show_samples()
        self._progress.history.save()
        summaries.writer(self._folder).flush()

    def _show_samples(self) -> None:
        """Shows the first images of the last step's batch, unless they are shown already."""
        if self._samples is not None:
            summaries.add_samples(self._folder, *self._samples)
            self._samples = None
