"""Predicts the classes of image files."""

import os
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Optional

import numpy as np
import numpy.typing as npt
import tensorflow.compat.v1 as tf

from cifar10 import image_file
from cifar10.config.train_config import TrainConfig
from cifar10.errors import UserError
from cifar10.host.signals import StopRequest
from cifar10.input.image_paths import expand
from cifar10.output import checkpoints, model_settings
from cifar10.run.job import start_job
from cifar10.run.modes.answers import Printer
from cifar10.run.tf_errors import clear_errors
from cifar10.schema import CHANNELS, HEIGHT, WIDTH
from cifar10_program.paths import is_utf8

_MOST_BYTES = 64 << 20  # of a file


@dataclass(frozen=True)
class Read:
    """A file that is to be read or was read.

    Attributes:
      path: its path.
      image: the image in it; None before it was read, or if it cannot be used.
      error: why it cannot be used.
    """

    path: str
    image: Optional[image_file.Decoded] = None
    error: str = ""


def predict(config: TrainConfig, stop: StopRequest) -> None:
    """Runs the mode: prints the likeliest classes of each image file.

    Files that cannot be used are named on standard error, and the others are predicted.

    Raises:
      UserError: a file could not be used, or there is no complete checkpoint.
      Stopped: a signal arrived.
    """
    files = find_files([config.place(place) for place in config.images])
    place, given = config.output_place, config.checkpoint_place
    checkpoints.find(place, given)  # Without one, no file is read.
    answers = checkpoints.with_found(place, given, lambda one: _predict(config, one, files, stop))
    answers.finish()


def _predict(
    config: TrainConfig, checkpoint: str, files: Sequence[Read], stop: StopRequest
) -> Printer:
    """Predicts with a checkpoint; prints nothing before it was read."""
    job, resize = start_job(config), model_settings.resize_of(config)
    printer = Printer([file.path for file in files], job.class_names, resize, config.json)
    reading = _Reading(files, resize)
    answers = job.estimator.predict(
        lambda: tf.data.Dataset.from_generator(
            reading.pixels,
            output_signature=tf.TensorSpec([HEIGHT, WIDTH, CHANNELS], tf.uint8),
        ).batch(config.eval_batch_size),
        checkpoint_path=checkpoint,
    )
    with clear_errors(config):
        for answer in answers:
            stop.check()
            file = reading.done.popleft()
            while file.image is None:
                printer.refuse(file.path, file.error)
                file = reading.done.popleft()
            printer.answer(file.path, file.image, answer["probabilities"])
    for file in reading.done:
        printer.refuse(file.path, file.error)
    return printer


def find_files(places: Sequence[str]) -> list[Read]:
    """Returns the files that are to be read, in order, and an error for each place without any.

    A folder that cannot be read is an error, too, behind the files of its place.

    Args:
      places: names of files and folders, or patterns.
    """
    files = []
    for place in places:
        errors: list[str] = []
        try:
            files += [Read(path) for path in expand(place, errors.append)]
        except UserError as error:
            errors.append(str(error))
        files += [Read(place, error=error) for error in errors]
    return files


def read_image(path: str, resize: str) -> image_file.Decoded:
    """Reads and decodes an image file.

    Args:
      path: its path, any that tf.io.gfile opens.
      resize: how an image of another size is brought to 32x32, a value of `schema.RESIZES`.

    Raises:
      UserError: the file cannot be read, is no regular one, is larger than 64 MiB, is no image that
        can be used, or there is too little memory to decode it.
    """
    if not is_utf8(path):
        raise UserError(f"{path} cannot be read: its name is no UTF-8; rename it")
    if "://" not in path and os.path.exists(path) and not os.path.isfile(path):
        raise UserError(f"{path} is no regular file; only those are read, no pipes and no devices")
    try:
        with tf.io.gfile.GFile(path, "rb") as file:
            data = bytes(file.read(_MOST_BYTES + 1))
    except tf.errors.OpError as error:
        raise UserError(f"{path} cannot be read: {error.message}") from error
    if len(data) > _MOST_BYTES:
        raise UserError(f"{path} is larger than the limit for image files, {_MOST_BYTES:,} bytes")
    try:
        return image_file.decode(data, resize)
    except image_file.ImageFileError as error:
        raise UserError(f"{path}: {error}") from error
    except MemoryError as error:
        raise UserError(f"{path}: out of memory; free some, or make the image smaller") from error


class _Reading:
    """Reads files while earlier ones are predicted.

    Attributes:
      done: the files that were read and not yet reported, in order.
    """

    def __init__(self, files: Sequence[Read], resize: str) -> None:
        self._files, self._resize = files, resize
        self.done: deque[Read] = deque()

    def pixels(self) -> Iterator[npt.NDArray[np.uint8]]:
        """Yields the pixels of each file that can be used, and appends all files to `done`."""
        for file in self._files:
            if file.error:
                self.done.append(file)
                continue
            try:
                image = read_image(file.path, self._resize)
            except UserError as error:
                self.done.append(Read(file.path, error=str(error)))
                continue
            self.done.append(Read(file.path, image))
            yield image.pixels
