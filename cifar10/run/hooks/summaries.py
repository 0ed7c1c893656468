"""TensorBoard's event files, with each step once, whatever was killed.

A run that continues from a checkpoint repeats the steps after it, and a killed process may have
left events of these steps. An event SessionLog.START with a step takes them back: TensorBoard's
`EventAccumulator`, and so its web page, drops earlier events of that step and of later ones.
"""

import io
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow.compat.v1 as tf
from PIL import Image

from cifar10.output.report import confusion_matrix_png, png_of

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
