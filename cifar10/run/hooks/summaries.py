"""TensorBoard's event files and metrics.jsonl, with each step once, whatever was killed.

A run that continues from a checkpoint repeats the steps after it, and a killed process may have
left events of these steps. An event SessionLog.START with a step takes them back: TensorBoard's
`EventAccumulator`, and so its web page, drops earlier events of that step and of later ones.
"""

import io
from collections.abc import Sequence
from typing import Any, Optional

import numpy as np
import tensorflow.compat.v1 as tf
from PIL import Image

from cifar10.output.history import History
from cifar10.output.report import confusion_matrix_png, png_of
from cifar10.run.hooks.progress import StepClock
from cifar10.run.job import Job
from cifar10.schema import TRAIN
from cifar10.step.training_step import StepReport

SAMPLES = "augmented_samples"  # the tag of training images
_RGB = 3  # in tf.Summary.Image
_COLUMNS, _SCALE, _GAP = 4, 4, 8  # images in a row; pixels for one; pixels between two images


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


def add_samples(folder: str, step: int, images: Any) -> None:
    """Adds the first images of a training batch, uint8 [n, 32, 32, 3], to TensorBoard."""
    add_picture(folder, step, SAMPLES, png_of(_sheet(images)))


def _sheet(images: Any) -> Any:
    """Lays out uint8 [N, 32, 32, 3] in rows, enlarged: uint8 [height, width, 3]."""
    large = np.kron(images, np.ones([1, _SCALE, _SCALE, 1], np.uint8))
    missing, white = -len(large) % _COLUMNS, 255  # What a crop uncovers is black.
    padded = np.pad(large, [(0, missing), (0, _GAP), (0, _GAP), (0, 0)], constant_values=white)
    _, height, width, _ = padded.shape
    rows = padded.reshape(-1, _COLUMNS, height, width, 3).swapaxes(1, 2)
    return rows.reshape(-1, _COLUMNS * width, 3)[:-_GAP, :-_GAP]


class MetricRows:
    """Writes a row of step 1, of each multiple of --summary-steps, and of the last step.

    Loss and accuracy are means over the steps since the row before. So a run that was killed and
    continued has rows of the same steps as one that was not. If another trainer takes such a step,
    the next step of this process has the row instead.

    Args:
      history: the history, whose metrics.jsonl gets the rows.
      clock: the clock that measures the time of the steps.
      job: the job that is trained.
    """

    def __init__(self, history: History, clock: StepClock, job: Job) -> None:
        self._history, self._clock, self._job = history, clock, job
        self._every = job.config.steps_between_rows(job.total_steps)
        self._folder = job.config.log_folder(TRAIN)
        self._starts = 0
        self.begin(0)

    def begin(self, step: int) -> None:
        """Begins the means anew, in a session that begins at a checkpoint of `step`."""
        self._written = step
        self._reports: list[StepReport] = []  # of the steps since the row before
        self._speed_from: Optional[tuple[float, int]] = None  # (seconds, images seen) at a step

    def add(self, report: StepReport) -> None:
        """Writes a row if it is due."""
        self._reports.append(report)
        if self._clock.starts != self._starts and self._job.own_examples:
            self._speed_from = None  # Other replicas continued during the pause.
        self._starts = self._clock.starts
        if not self._written or report.step // self._every > self._written // self._every:
            self._write()
        if self._speed_from is None:  # The first step also builds kernels, so it is not measured.
            self._speed_from = (self._clock.seconds, report.examples_seen)

    def finish(self) -> None:
        """Writes the row of the last step, and all rows to TensorBoard's file."""
        if self._reports:
            self._write()
        writer(self._folder).flush()

    def _write(self) -> None:
        report, count = self._reports[-1], len(self._reports)
        figures = {
            "loss": sum(one.loss for one in self._reports) / count,
            "accuracy": sum(one.accuracy for one in self._reports) / count,
            "learning_rate": report.learning_rate,
        }
        if self._speed_from is not None:
            since, seen = self._speed_from
            seconds = max(self._clock.seconds - since, 1e-9)
            figures["images_per_sec"] = (report.examples_seen - seen) / seconds
        values = [tf.Summary.Value(tag=tag, simple_value=one) for tag, one in figures.items()]
        writer(self._folder).add_summary(tf.Summary(value=values), report.step)
        figures["epoch"] = report.examples_seen / self._job.num_examples
        figures["seconds"] = self._clock.seconds
        self._history.metrics.add(TRAIN, report.step, figures)
        self.begin(report.step)
