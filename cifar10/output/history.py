"""The figures measured during training: rows for the curves, kept in the output folder."""

import dataclasses
import json
from typing import Any, Optional

import tensorflow.compat.v1 as tf

from cifar10.errors import DamagedError
from cifar10.host import files
from cifar10.host.files import read_json, write_text
from cifar10.output.metrics import Metrics

FILE_NAME = "history.json"
VALIDATION_FILE_NAME = "history_validation.json"  # The rows of a separate evaluator.


@dataclasses.dataclass
class History:
    """Rows of training and of validation, in the order of steps.

    Attributes:
      path: path of the file with the rows; None: they are not saved.
      train: one row for each interval of training: step, epoch, loss, accuracy, learning_rate,
        images_per_sec, seconds of training so far, and own_images_per_sec if several tasks train.
      validation: one row for each validation: step, epoch, loss, accuracy, seconds of training up
        to the last row of `train`.
      metrics: the rows of metrics.jsonl, which are forgotten and saved with the others.
    """

    path: Optional[str]
    train: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    validation: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    metrics: Metrics = dataclasses.field(default_factory=Metrics)

    @classmethod
    def load(cls, output_dir: str, last_step: int, name: str = FILE_NAME) -> "History":
        """Reads the rows up to `last_step`; later steps were not saved and are trained again.

        Raises:
          UnreadableError: the file cannot be read.
          DamagedError: the content is not what `save` writes.
        """
        path = tf.io.gfile.join(output_dir, name)
        history = cls(path)
        if last_step and files.exists(path):
            rows = _rows(path)
            history.train.extend(rows["train"])
            history.validation.extend(rows["validation"])
            history.forget_after(last_step)
        return history

    def forget_after(self, step: int) -> None:
        """Removes the rows of steps after `step`, which are trained again."""
        self.train = [row for row in self.train if row["step"] <= step]
        self.validation = [row for row in self.validation if row["step"] <= step]
        self.metrics.forget_after(step)

    @property
    def seconds(self) -> float:
        """Seconds of training up to the last row of `train`, without pauses for validation."""
        return float(self.train[-1]["seconds"]) if self.train else 0.0

    def save(self) -> None:
        """Writes all rows to `path` by replacing the file, and those of `metrics` to disk."""
        if self.path is not None:
            write_text(self.path, json.dumps(self.as_dict()))
        self.metrics.flush()

    def as_dict(self) -> dict[str, Any]:
        """Returns the rows, for result.json."""
        return {"train": self.train, "validation": self.validation}


def validations(output_dir: str, last_step: int) -> list[dict[str, Any]]:
    """Returns the rows of all validations up to `last_step`, whichever process validated.

    A run may have had an evaluator for a part of its steps. The rows of a damaged file are left
    out: who writes it renames it when it starts.

    Raises:
      UnreadableError: a file cannot be read.
    """
    found: dict[int, dict[str, Any]] = {}
    for name in (VALIDATION_FILE_NAME, FILE_NAME):
        try:
            rows = History.load(output_dir, last_step, name).validation
        except DamagedError:
            continue
        found.update((row["step"], row) for row in rows)
    return [found[step] for step in sorted(found)]


def _rows(path: str) -> dict[str, list[dict[str, Any]]]:
    """Reads the rows of a file.

    Raises:
      DamagedError: the content is not what `History.save` writes.
      UnreadableError: the file cannot be read.
    """
    rows = read_json(path)
    common = {"step", "epoch", "loss", "accuracy", "seconds"}
    needed = {"train": common | {"learning_rate", "images_per_sec"}, "validation": common}
    for name, keys in needed.items():
        found = rows.get(name) if isinstance(rows, dict) else None
        if not isinstance(found, list) or not all(
            isinstance(row, dict)
            and keys <= row.keys()
            and all(isinstance(value, (int, float)) for value in row.values())
            for row in found
        ):
            raise DamagedError(path, f"{name} has no rows")
    return rows
