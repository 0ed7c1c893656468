"""Predicts the classes of image files, and prints a line for each, in words or as JSON."""

import os
from collections.abc import Sequence
from typing import Any, Union

import numpy as np
import tensorflow.compat.v1 as tf

from cifar10 import image_file
from cifar10.config.train_config import TrainConfig
from cifar10.errors import UserError
from cifar10.host.files import as_json
from cifar10.host.process import StopRequest, one_line, say
from cifar10.image_file import Decoded
from cifar10.input.image_files import expand
from cifar10.output import checkpoints, model_settings
from cifar10.run.job import load_model
from cifar10.schema import CHANNELS, CROP, HEIGHT, PAD, STRETCH, WIDTH
from cifar10.step.model_fn import model_fn
from cifar10_program.paths import is_utf8
from cifar10_program.streams import complain

_MOST_BYTES = 64 << 20  # of a file
_SHOWN = 3  # classes per line
_WORDS = {CROP: "cropped", PAD: "padded", STRETCH: "stretched"}


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
    errors = checkpoints.with_found(place, given, lambda one: _predict(config, one, files, stop))
    if errors and len(files) == 1:
        raise UserError(errors[0])
    if errors:
        raise UserError(
            f"{len(errors):,} of {len(files):,} image files could not be used; the lines above "
            "name them"
        )


def find_files(places: Sequence[str]) -> list[tuple[str, str]]:
    """Returns the files that are to be read, in order, each with "".

    A place without any, or a folder that cannot be read, is there with its error instead.

    Args:
      places: names of files and folders.
    """
    files = []
    for place in places:
        errors: list[str] = []
        try:
            files += [(path, "") for path in expand(place, errors.append)]
        except UserError as error:
            errors.append(str(error))
        files += [(place, error) for error in errors]
    return files


def _predict(
    config: TrainConfig, checkpoint: str, files: Sequence[tuple[str, str]], stop: StopRequest
) -> list[str]:
    """Prints the answers, nothing before the checkpoint was read; returns the files' errors."""
    params, class_names = load_model(config)
    resize, errors = model_settings.resize_of(config), []
    width = max(len(path) for path, _ in files)
    with tf.Graph().as_default(), tf.Session(config=params.plan.session_config) as session:
        images = tf.placeholder(tf.uint8, [None, HEIGHT, WIDTH, CHANNELS])
        spec = model_fn(images, None, tf.estimator.ModeKeys.PREDICT, params)
        shares = spec.predictions["probabilities"]
        tf.train.Saver().restore(session, checkpoint)
        for start in range(0, len(files), config.eval_batch_size):
            batch = files[start : start + config.eval_batch_size]
            read = [_read(path, error, resize, stop) for path, error in batch]
            pixels = [one.pixels for one in read if isinstance(one, Decoded)]
            answers = iter(session.run(shares, {images: np.stack(pixels)}) if pixels else ())
            for (path, _), one in zip(batch, read):
                if isinstance(one, str):
                    errors.append(one)
                    if config.json:
                        say(as_json({"file": path, "error": one}))
                    if len(files) > 1:
                        complain(f"error: {one_line(one)}")
                elif config.json:
                    say(_json_of(path, one, resize, next(answers), class_names))
                else:
                    answer = describe(next(answers), class_names)
                    say(f"{one_line(path):<{width}}  {answer}{_how_resized(one, resize)}")
    return errors


def _read(path: str, error: str, resize: str, stop: StopRequest) -> Union[Decoded, str]:
    """Returns the image in a file, or why it cannot be used."""
    stop.check()
    try:
        return error or read_image(path, resize)
    except UserError as refusal:
        return str(refusal)


def describe(probabilities: Any, class_names: Sequence[str]) -> str:
    """Formats probabilities, float [10], as `cat 93.1 %, dog 4.0 %, deer 1.1 %`."""
    order = sorted(range(len(class_names)), key=lambda index: -probabilities[index])
    return ", ".join(
        f"{one_line(class_names[index])} {100 * probabilities[index]:.1f} %"
        for index in order[:_SHOWN]
    )


def _how_resized(image: Decoded, resize: str) -> str:
    if not image.was_resized:
        return ""
    columns, rows = image.size
    return f"  ({columns}x{rows}, {_WORDS[resize]} to {WIDTH}x{HEIGHT})"


def _json_of(
    path: str, image: Decoded, resize: str, shares: Any, class_names: Sequence[str]
) -> str:
    """Returns the JSON object of a file, in a line; docs/outputs.md lists its fields."""
    best = int(np.argmax(shares))
    return as_json(
        {
            "file": path,
            "class": class_names[best],
            "class_id": best,
            "probabilities": dict(zip(class_names, map(float, shares))),
            "size": image.size,
            "resize": resize if image.was_resized else None,
        }
    )


def read_image(path: str, resize: str) -> Decoded:
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
        if len(data) > _MOST_BYTES:
            raise UserError(
                f"{path} is larger than the limit for image files, {_MOST_BYTES:,} bytes"
            )
        return image_file.decode(data, resize)
    except tf.errors.OpError as error:
        raise UserError(f"{path} cannot be read: {error.message}") from error
    except image_file.ImageFileError as error:
        raise UserError(f"{path}: {error}") from error
    except MemoryError as error:
        raise UserError(f"{path}: out of memory; free some, or make the image smaller") from error
