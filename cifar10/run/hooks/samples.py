"""Shows training images in TensorBoard, as they were augmented."""

from typing import Any, Optional

import numpy as np
import tensorflow.compat.v1 as tf

from cifar10.output.report import png_of
from cifar10.run.hooks import summaries
from cifar10.step import model_fn, training_step
from cifar10.step.training_step import StepReport

TAG = "augmented_samples"
_COLUMNS, _SCALE, _GAP = 4, 4, 8  # images in a row; pixels for one; pixels between two images


class SamplesHook(tf.train.SessionRunHook):
    """Adds the first images of step 1's batch, and of the batch before each checkpoint.

    Args:
      folder: the folder for the events.
    """

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._images: Optional[Any] = None  # of the last step, until they are written
        self._step = 0

    def begin(self) -> None:
        """Finds the tensors of the graph that is about to run."""
        samples = tf.get_default_graph().get_tensor_by_name(f"{model_fn.SAMPLES}:0")
        self._fetches = (samples, training_step.report_tensor())

    def after_create_session(self, session: Any, coord: Any) -> None:
        """Forgets the images of steps that are taken again."""
        self._images = None

    def before_run(self, run_context: Any) -> Any:
        """Requests the images and the report of the step."""
        return tf.train.SessionRunArgs(self._fetches)

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """Keeps the images for a checkpoint that may come next."""
        self._images, report = run_values.results
        self._step = StepReport.of(report).step
        if self._step == 1:
            self.write()

    def write(self) -> None:
        """Writes the images of the last step, unless they are written already."""
        if self._images is not None:
            summaries.add_picture(self._folder, self._step, TAG, png_of(_sheet(self._images)))
            self._images = None


def _sheet(images: Any) -> Any:
    """Lays out uint8 [N, 32, 32, 3] in rows, enlarged: uint8 [height, width, 3]."""
    large = np.kron(images, np.ones([1, _SCALE, _SCALE, 1], np.uint8))
    missing, white = -len(large) % _COLUMNS, 255  # What a crop uncovers is black.
    padded = np.pad(large, [(0, missing), (0, _GAP), (0, _GAP), (0, 0)], constant_values=white)
    _, height, width, _ = padded.shape
    rows = padded.reshape(-1, _COLUMNS, height, width, 3).swapaxes(1, 2)
    return rows.reshape(-1, _COLUMNS * width, 3)[:-_GAP, :-_GAP]
