"""TensorBoard's event files: one writer a folder, and events that a later run takes back.

An event file has each step once, whatever was killed. A run that continues from a checkpoint
repeats the steps after it, and a killed process may have left events of these steps. An event
SessionLog.START with a step takes them back: TensorBoard's `EventAccumulator`, and so its web page,
drops earlier events of that step and of later ones.
"""

from collections.abc import Mapping
from typing import Any

import tensorflow.compat.v1 as tf

from cifar10.image_decoding import png_of


def writer(folder: str) -> Any:
    """Returns the writer of this process's event file in a folder, as CheckpointSaverHook does."""
    with tf.Graph().as_default():  # FileWriter is not available in eager execution.
        return tf.summary.FileWriterCache.get(folder)


def add_row(folder: str, step: int, row: Mapping[str, float]) -> None:
    """Adds the numbers of a step, by name, to TensorBoard's curves."""
    values = [tf.Summary.Value(tag=tag, simple_value=number) for tag, number in row.items()]
    writer(folder).add_summary(tf.Summary(value=values), step)


def take_back(folder: str, first_step: int) -> None:
    """Makes TensorBoard drop earlier events of `first_step` and of later steps."""
    log = tf.SessionLog(status=tf.SessionLog.START)
    writer(folder).add_session_log(log, first_step)


def add_picture(folder: str, step: int, tag: str, pixels: Any) -> None:
    """Adds a picture, uint8 [height, width, 3], to TensorBoard."""
    png, (height, width, _) = png_of(pixels), pixels.shape
    picture = tf.Summary.Image(encoded_image_string=png, width=width, height=height, colorspace=3)
    writer(folder).add_summary(tf.Summary(value=[tf.Summary.Value(tag=tag, image=picture)]), step)
