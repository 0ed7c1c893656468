"""The Python API: `train`, `evaluate` and `Predictor`, for notebooks and programs.

Settings are keyword arguments with the names of the flags, values are checked by the same rules,
and mistakes are the exceptions of `cifar10.errors` instead of exit codes. TensorFlow is imported by
the first call.
"""

import contextlib
import dataclasses
import json
import os
import sys
import time
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np

from cifar10.cluster.tf_config import TF_CONFIG
from cifar10.config import flags
from cifar10.errors import ConfigError
from cifar10.main import prepared, tensorflow_loaded

_SCRIPT = "cifar10_main.py"


@dataclasses.dataclass(frozen=True)
class Result:
    """What a training has found; docs/outputs.md describes all, under result.json.

    Attributes:
      output_dir: path of the folder with checkpoints, report.html, export and TensorBoard's files.
      status: how training ended: `completed`, or what ended it before its last step.
      metrics: the numbers of the run, such as `eval_accuracy` (a share of 1) and `wall_seconds`.
      history: the curves: for `train` and `validation`, a list of rows with `step`, `epoch`, `loss`
        and `accuracy`.
      class_names: the classes in the order of the labels.
      confusion_matrix: numbers of images by true class (rows) and predicted class (columns).
      settings: the value of each setting by name.
    """

    output_dir: str
    status: str
    metrics: dict[str, Any]
    history: dict[str, list[dict[str, Any]]] = dataclasses.field(repr=False)
    class_names: list[str] = dataclasses.field(repr=False)
    confusion_matrix: list[list[int]] = dataclasses.field(repr=False)
    settings: dict[str, Any] = dataclasses.field(repr=False)


class Prediction(NamedTuple):
    """What a model sees in an image.

    Attributes:
      class_name: the likeliest class.
      probability: its probability.
      probabilities: the probability of each class by its name, in the order of the labels.
    """

    class_name: str
    probability: float
    probabilities: dict[str, float]


def train(**settings: Any) -> Result:
    """Trains in this process, or continues a run; validates, evaluates, reports and exports.

    Args:
      **settings: the flags of `cifar10_main.py --help-all`, such as `recipe="fast"`.

    Raises:
      UserError: a setting or the data are wrong.
      TrainingError: training failed.
      Stopped: a signal arrived, such as an interrupt of a notebook's kernel; a checkpoint has been
        saved, and the same call continues.
    """
    words = _words("train_and_evaluate", settings)
    config, started = flags.parse(words), time.monotonic()
    if config.dry_run:
        raise ConfigError(f"dry_run is for {_SCRIPT} --dry-run; cifar10.train trains: leave it out")
    # result.json and the report have the command that does the same.
    argv, sys.argv = sys.argv, [_SCRIPT, *words]
    try:
        with _prepared(config) as (cluster, stop):
            if cluster is not None:
                this = f"TF_CONFIG or the flags make this process {cluster.label} of a cluster"
                way_out = f"start its tasks by {_SCRIPT}"
                raise ConfigError(f"cifar10.train trains alone, but {this}; {way_out}")
            from cifar10.host.files import read_json
            from cifar10.run.results import RESULT_NAME
            from cifar10.train import train_and_evaluate

            train_and_evaluate(config, stop, started)
            found = read_json(os.path.join(config.output_path, RESULT_NAME))
    finally:
        sys.argv = argv
    keys = ("status", "figures", "history", "class_names", "confusion_matrix", "configuration")
    return Result(config.output_path, *(found[key] for key in keys))


def evaluate(**settings: Any) -> dict[str, Any]:
    """Evaluates a checkpoint on the eval split: the best one, or `checkpoint`.

    Args:
      **settings: flags, such as `output_dir` and `data_dir`; those of the model are not needed.

    Returns:
      `accuracy`, with `test_time_augmentation` also `augmented_accuracy`, and `class_accuracy` by
      class (shares of 1; None: no images); `loss`, the mean cross-entropy in nats; `global_step`.

    Raises:
      UserError: a setting or the data are wrong, or there is no checkpoint.
      Stopped: a signal arrived.
    """
    config = flags.parse(_words("evaluate", settings))
    with _prepared(config) as (_, stop):
        from cifar10.run import results

        found = results.evaluate(config, stop)
        matrix = found.confusion_matrix
        numbers = zip(found.class_names, matrix.diagonal().tolist(), matrix.sum(axis=1).tolist())
        by_class = {name: right / total if total else None for name, right, total in numbers}
        return {**found.metrics, "global_step": found.step, "class_accuracy": by_class}


@contextlib.contextmanager
def _prepared(config: Any) -> Iterator[Any]:
    """Does what `cifar10.main.prepared` does, and leaves TF_CONFIG as it was before the call."""
    given = {TF_CONFIG: os.environ[TF_CONFIG]} if TF_CONFIG in os.environ else {}
    try:
        with prepared(config) as found:
            yield found
    finally:
        os.environ.pop(TF_CONFIG, None)
        os.environ.update(given)


class Predictor:
    """Predicts the classes of images by a trained model, which it loads once.

    Args:
      output_dir: the folder of a training; its best checkpoint is taken.
      **settings: further flags, such as `checkpoint`.

    Attributes:
      class_names: the classes in the order of the labels.

    Raises:
      UserError: the folder has no checkpoint, or it cannot be read.
    """

    def __init__(self, output_dir: "str | os.PathLike[str]", **settings: Any) -> None:
        # As if the command had images, which it needs.
        words = _words("predict", {**settings, "output_dir": output_dir})
        config = flags.parse([*words, os.devnull])
        with tensorflow_loaded(config):
            from cifar10.run import predict

            self._predictor = predict.load(config)
        self.class_names = list(self._predictor.class_names)

    def predict(self, images: Iterable[Any]) -> list[Prediction]:
        """Predicts the class of each image.

        Args:
          images: paths of image files, or pixels as uint8 [height, width, 3] or a PIL image; of any
            size: they are brought to 32x32 as the images of training were.

        Raises:
          UserError: a file cannot be used.
          ValueError: an array has other values or another shape.
        """
        from cifar10.image_decoding import decode, png_of
        from cifar10.input.image_files import read_image

        pixels, resize = [], self._predictor.resize
        for image in images:
            if isinstance(image, (str, os.PathLike)):
                decoded = read_image(os.fspath(image), resize)
            else:
                array = np.asarray(image)
                if array.dtype != np.uint8 or array.ndim != 3 or array.shape[2] != 3:
                    rule = "an image must be a path, or uint8 [height, width, 3]"
                    raise ValueError(f"{rule}, got {array.dtype} {list(array.shape)}")
                decoded = decode(png_of(array), resize)
            pixels.append(decoded.pixels)
        if not pixels:
            return []
        rows, names = self._predictor.probabilities(np.stack(pixels)).tolist(), self.class_names
        return [Prediction(names[np.argmax(row)], max(row), dict(zip(names, row))) for row in rows]


def _words(mode: str, settings: dict[str, Any]) -> list[str]:
    """Returns settings as words of the command line, which has one set of rules for both."""
    words = [f"--mode={mode}"]
    for name, value in settings.items():
        if isinstance(value, dict):
            value = json.dumps(value)
        elif isinstance(value, tuple):
            value = ":".join(map(str, value))
        if value is not None:
            words.append(f"--{name.replace('_', '-')}={value}")
    return words
