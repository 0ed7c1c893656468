"""The mode that predicts: the likeliest classes of image files, by a trained model."""

from typing import Any

import numpy as np
import tensorflow.compat.v1 as tf

from cifar10.config.train_config import TrainConfig
from cifar10.errors import UserError
from cifar10.host.files import as_json
from cifar10.host.process import StopRequest, log, one_line
from cifar10.image_decoding import Decoded
from cifar10.input.image_files import expand, read_image
from cifar10.output import checkpoints, model_settings
from cifar10.run.job import load_model
from cifar10.schema import CHANNELS, HEIGHT, WIDTH
from cifar10.step.model_fn import model_fn
from cifar10_program.streams import columns_of, log_error, padded

_SHOWN = 3  # classes per line


class Predictor:
    """A checkpoint's model in a session of its own.

    Args:
      config: the settings, of --mode predict.
      checkpoint: the checkpoint's path.

    Attributes:
      class_names: the classes in the order of the labels.
      resize: how images of another size are brought to 32x32.
    """

    def __init__(self, config: TrainConfig, checkpoint: str) -> None:
        params, self.class_names = load_model(config)
        self.resize = model_settings.resize_of(config)
        with tf.Graph().as_default() as graph:
            self._images = tf.placeholder(tf.uint8, (None, HEIGHT, WIDTH, CHANNELS))
            spec = model_fn(self._images, None, tf.estimator.ModeKeys.PREDICT, params)
            self._probabilities = spec.predictions["probabilities"]
            self._session = tf.Session(graph=graph, config=params.plan.session_config)
            tf.train.Saver().restore(self._session, checkpoint)

    def probabilities(self, images: Any) -> Any:
        """Returns the probabilities, float32 [N, classes], of images, uint8 [N, 32, 32, 3]."""
        return self._session.run(self._probabilities, {self._images: images})


def predict(config: TrainConfig, stop: StopRequest) -> None:
    """Runs the mode: prints the likeliest classes of each image file.

    Files that cannot be used are named on standard error at the end; the others are predicted.

    Raises:
      UserError: a file could not be used, a name stands for none, or there is no checkpoint.
      Stopped: a signal arrived.
    """
    predictor = load(config)
    errors: list[str] = []
    names = map(config.resolve, config.images)
    paths = [path for name in names for path in expand(name, errors.append)]
    width = max(map(columns_of, paths), default=0)
    for start in range(0, len(paths), config.eval_batch_size):
        read: list[tuple[str, Decoded]] = []
        for path in paths[start : start + config.eval_batch_size]:
            stop.check()
            try:
                read.append((path, read_image(path, predictor.resize)))
            except UserError as error:
                errors.append(str(error))
        if read:
            pixels = np.stack([image.pixels for _, image in read])
            for (path, image), row in zip(read, predictor.probabilities(pixels)):
                found = {  # docs/outputs.md lists the fields.
                    "file": path,
                    "class": predictor.class_names[row.argmax()],
                    "class_id": int(row.argmax()),
                    "probabilities": dict(zip(predictor.class_names, map(float, row))),
                    "size": image.size,
                    "resize": None if image.size == (WIDTH, HEIGHT) else predictor.resize,
                }
                words = f"{padded(one_line(path), width)}  {describe(found)}"
                log(as_json(found) if config.json else words)
    for line in errors[:-1]:
        log_error(f"error: {one_line(line)}")
    if errors:
        raise UserError(errors[-1])


def load(config: TrainConfig) -> Predictor:
    """Returns the predictor of --checkpoint, by default of the best one or else the latest.

    Raises:
      UserError: there is no complete checkpoint.
    """
    return checkpoints.with_found(config, lambda path: Predictor(config, path))


def describe(answer: dict[str, Any]) -> str:
    """Formats an answer as `cat 93.1 %, dog 4.0 %, deer 1.1 %  (64x32, pad to 32x32)`."""
    likely = sorted(answer["probabilities"].items(), key=lambda row: -row[1])[:_SHOWN]
    text = ", ".join(f"{one_line(name)} {100 * value:.1f} %" for name, value in likely)
    if answer["resize"]:
        size = "x".join(map(str, answer["size"]))
        text += f"  ({size}, {answer['resize']} to {WIDTH}x{HEIGHT})"
    return text
