"""TensorBoard's event files, with each step once, even if a run was killed and continued.

A run that continues from a checkpoint repeats the steps after it, and a killed process may have
left events of these steps. An event SessionLog.START with a step takes them back: TensorBoard's
`EventAccumulator`, and so its web page, drops earlier events of that step and of later ones.
"""

import io
from collections.abc import Sequence
from typing import Any

import tensorflow.compat.v1 as tf
from PIL import Image

from cifar10.output import checkpoints
from cifar10.output.history import History
from cifar10.output.report import confusion_matrix_png
from cifar10.step import training_step
from cifar10.step.training_step import StepReport

_RGB = 3  # in tf.Summary.Image


def writer(folder: str) -> Any:
    """Returns the writer of this process's event file in a folder; Estimator uses it, too."""
    with tf.Graph().as_default():  # FileWriter is not available in eager execution.
        return tf.summary.FileWriterCache.get(folder)


def take_back(folder: str, first_step: int) -> None:
    """Makes TensorBoard drop earlier events of `first_step` and of later steps."""
    log = tf.SessionLog(status=tf.SessionLog.START)
    writer(folder).add_session_log(log, first_step)


def add_confusion_matrix(folder: str, step: int, counts: Any, class_names: Sequence[str]) -> None:
    """Adds the picture of a confusion matrix, `confusion_matrix`, to TensorBoard.

    Args:
      folder: the folder for the events.
      step: the global step of the evaluation.
      counts: int64 [10, 10]; the rows are true classes, the columns predicted ones.
      class_names: the names of the classes.
    """
    add_picture(folder, step, "confusion_matrix", confusion_matrix_png(counts, class_names))
    writer(folder).flush()


def add_picture(folder: str, step: int, tag: str, png: bytes) -> None:
    """Adds a PNG file to TensorBoard."""
    with Image.open(io.BytesIO(png)) as image:
        width, height = image.size
    picture = tf.Summary.Image(
        encoded_image_string=png, width=width, height=height, colorspace=_RGB
    )
    writer(folder).add_summary(tf.Summary(value=[tf.Summary.Value(tag=tag, image=picture)]), step)


def keep(history: History, folder: str) -> None:
    """Writes rows and events to their files, so that they survive a kill of this process."""
    history.save()
    writer(folder).flush()


class ResumeHook(tf.train.SessionRunHook):
    """Takes back events and rows of steps that are about to be repeated.

    Each session begins from the latest checkpoint. In a cluster that has lost a parameter server,
    a process begins another session.

    Args:
      output_dir: the folder of the checkpoints.
      log_dir: the folder of the events.
      history: the history whose rows are taken back.
    """

    def __init__(self, output_dir: str, log_dir: str, history: History) -> None:
        self._output_dir, self._log_dir, self._history = output_dir, log_dir, history

    def after_create_session(self, session: Any, coord: Any) -> None:
        """Takes back what is later than the checkpoint.

        The step is the checkpoint's, since other replicas may have taken steps since its restore.
        """
        step = checkpoints.latest_step(self._output_dir)
        self._history.forget_after(step)
        take_back(self._log_dir, step + 1)


class SummaryHook(tf.train.SessionRunHook):
    """Writes the summaries that a model makes, of step 1 and of each multiple of `steps`.

    So a run that was killed and continued has summaries of the same steps as one that was not. If
    another trainer takes such a step, the next step that this process begins is used instead.

    Args:
      steps: the number of steps between two summaries.
      folder: the folder for the events.
    """

    def __init__(self, steps: int, folder: str) -> None:
        self._steps, self._folder = steps, folder

    def begin(self) -> None:
        """Merges the summaries of the graph that is about to run."""
        # Estimator adds a summary of the loss, which `MetricsHook` writes with the other figures.
        own = [one for one in tf.get_collection(tf.GraphKeys.SUMMARIES) if one.op.name != "loss"]
        self._summary = tf.summary.merge(own) if own else None
        self._report = training_step.report_tensor()
        self._global_step = tf.train.get_global_step()
        self._writer = writer(self._folder)

    def after_create_session(self, session: Any, coord: Any) -> None:
        """Reads the global step."""
        self._step = self._written = int(session.run(self._global_step))

    def before_run(self, run_context: Any) -> Any:
        """Requests the summaries if they are due in this step."""
        self._is_due = self._summary is not None and (
            not self._step or self._round(self._step + 1) > self._round(self._written)
        )
        return tf.train.SessionRunArgs(
            (self._report, self._summary) if self._is_due else (self._report,)
        )

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """Writes the summaries if they were due."""
        self._step = StepReport.of(run_values.results[0]).step
        if self._is_due:
            self._writer.add_summary(run_values.results[1], self._step)
            self._written = self._step

    def end(self, session: Any) -> None:
        """Writes the events that are still in memory."""
        self._writer.flush()

    def _round(self, step: int) -> int:
        return step // self._steps
