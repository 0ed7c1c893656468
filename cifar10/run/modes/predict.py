"""Predicts the classes of image files."""

import io
import warnings
from collections.abc import Sequence
from typing import Any

import tensorflow.compat.v1 as tf
from PIL import Image

from cifar10.config.train_config import TrainConfig
from cifar10.errors import UserError
from cifar10.host.console import say
from cifar10.input.decode import decode, decode_batch
from cifar10.output import checkpoints
from cifar10.run.job import start_job
from cifar10.run.tf_errors import clear_errors
from cifar10.tf_internals import error_messages

_FORMATS = ("PNG", "JPEG")
_SHOWN = 3  # classes per line
_MAX_PIXELS = 50_000_000


def predict(config: TrainConfig) -> None:
    """Runs the mode: prints the likeliest classes of each image file.

    Raises:
      UserError: a file is missing or not a PNG or JPEG image, or there is no complete checkpoint.
    """
    paths = [config.place(path) for path in config.images]
    encoded = [read_image(path) for path in paths]
    checkpoint = checkpoints.find(config)
    job = start_job(config)
    answers = job.estimator.predict(
        lambda: tf.data.Dataset.from_tensor_slices(encoded)
        .batch(config.eval_batch_size)
        .map(decode_batch),
        checkpoint_path=checkpoint,
    )
    width = max(map(len, paths))
    with clear_errors(config):
        try:
            for path, answer in zip(paths, answers):
                say(f"{path:<{width}}  {describe(answer['probabilities'], job.class_names)}")
        except tf.errors.InvalidArgumentError:
            refuse_undecodable(paths, encoded)
            raise


def describe(probabilities: Any, class_names: Sequence[str]) -> str:
    """Formats probabilities, float [10], as `cat 93.1 %, dog 4.0 %, deer 1.1 %`."""
    order = sorted(range(len(class_names)), key=lambda index: -probabilities[index])
    return ", ".join(
        f"{class_names[index]} {100 * probabilities[index]:.1f} %" for index in order[:_SHOWN]
    )


def read_image(path: str) -> bytes:
    """Reads a file and checks that it is an image that can be decoded.

    Raises:
      UserError: the file cannot be read, is no PNG or JPEG image, or has too many pixels.
    """
    try:
        with tf.io.gfile.GFile(path, "rb") as file:
            data = bytes(file.read())
    except tf.errors.OpError as error:
        raise UserError(f"{path} cannot be read: {error.message}") from error
    try:
        with warnings.catch_warnings():
            # Pillow warns of large images, which are refused here anyway.
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)
            image = Image.open(io.BytesIO(data), formats=_FORMATS)
        if image.width * image.height > _MAX_PIXELS:
            raise UserError(
                f"{path} has {image.width}x{image.height} pixels, the limit is {_MAX_PIXELS:,}"
            )
        image.load()
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise UserError(f"{path} is not a whole PNG or JPEG image: {error}") from error
    return data


def refuse_undecodable(paths: Sequence[str], encoded: Sequence[bytes]) -> None:
    """Names the first image that TensorFlow cannot decode, although Pillow could.

    Args:
      paths: paths of the images.
      encoded: their contents.

    Raises:
      UserError: there is such an image.
    """
    with tf.Graph().as_default(), tf.Session() as session:
        content = tf.placeholder(tf.string, [])
        image = decode(content)
        for path, data in zip(paths, encoded):
            try:
                session.run(image, {content: data})
            except tf.errors.InvalidArgumentError as error:
                reason = error_messages.reason(error.message)
                raise UserError(
                    f"{path} is a PNG or JPEG image that TensorFlow cannot decode: {reason}; save "
                    "it again with another program"
                ) from error
