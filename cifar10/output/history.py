"""What training measured on its way: rows for the curves, kept beside the checkpoints."""

import dataclasses
import json
from typing import Any, Optional

import tensorflow.compat.v1 as tf

from cifar10.host.files import read_json, write_text

FILE_NAME = "history.json"
VALIDATION_FILE_NAME = "history_validation.json"  # a separate evaluator's rows


@dataclasses.dataclass
class History:
    """Rows in the order of steps.

    Attributes:
      path: where the rows are kept; None: nowhere.
      train: one row a progress line: step, epoch, loss, accuracy, learning_rate, images_per_sec,
        seconds of training so far.
      validation: one row a validation: step, epoch, loss, accuracy, seconds.
    """

    path: Optional[str]
    train: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    validation: list[dict[str, Any]] = dataclasses.field(default_factory=list)

    @classmethod
    def load(cls, output_dir: str, last_step: int, name: str = FILE_NAME) -> "History":
        """Reads the rows of earlier runs up to `last_step`; later ones were lost with their run."""
        path = tf.io.gfile.join(output_dir, name)
        history = cls(path)
        if last_step and tf.io.gfile.exists(path):
            rows = read_json(path)
            history.train.extend(rows["train"])
            history.validation.extend(rows["validation"])
            history.forget_after(last_step)
        return history

    def forget_after(self, step: int) -> None:
        """Drops the rows of steps after `step`, which are trained again."""
        self.train = [row for row in self.train if row["step"] <= step]
        self.validation = [row for row in self.validation if row["step"] <= step]

    @property
    def seconds(self) -> float:
        """Seconds of training up to the last row, pauses for validation left out."""
        return float(self.train[-1]["seconds"]) if self.train else 0.0

    def save(self) -> None:
        """Writes all rows; a reader sees the old file or the new one."""
        if self.path is not None:
            write_text(self.path, json.dumps(self.as_dict()))

    def as_dict(self) -> dict[str, Any]:
        """The rows, for result.json."""
        return {"train": self.train, "validation": self.validation}
