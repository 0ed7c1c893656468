"""The figures measured during training: rows for the curves of the report, kept in run.json."""

import dataclasses
import math
from typing import Any, Optional

import tensorflow.compat.v1 as tf

from cifar10.host import files
from cifar10.output import metrics, run_file
from cifar10.output.metrics import Metrics
from cifar10.schema import VALIDATION

Rows = list[dict[str, Any]]


@dataclasses.dataclass
class History:
    """Rows of training and of validation, in the order of steps.

    Attributes:
      output_dir: path of the output folder whose run.json has the rows; None: they are not saved.
      train: one row for each interval of training: step, epoch, loss, accuracy, learning_rate,
        images_per_sec, seconds of training so far, and own_images_per_sec if several tasks train.
      validation: one row for each validation: step, epoch, loss, accuracy, seconds of training up
        to the last row of `train`.
      metrics: the rows of metrics.jsonl, which are forgotten and saved with the others.
    """

    output_dir: Optional[str]
    train: Rows = dataclasses.field(default_factory=list)
    validation: Rows = dataclasses.field(default_factory=list)
    metrics: Metrics = dataclasses.field(default_factory=Metrics)

    @classmethod
    def load(cls, output_dir: str, last_step: int) -> "History":
        """Reads the rows up to `last_step`; later steps were not saved and are trained again.

        Raises:
          DamagedError: run.json is damaged.
          UnreadableError: a file cannot be read.
        """
        history = cls(output_dir)
        if last_step:
            history.train = list(map(_numbers, run_file.read(output_dir).history["train"]))
            history.validation = validations(output_dir, last_step)
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
        """Writes all rows to run.json, and those of `metrics` to disk."""
        if self.output_dir is not None:
            run_file.update(self.output_dir, history=self.as_dict())
        self.metrics.flush()

    def as_dict(self) -> dict[str, Rows]:
        """Returns the rows, for run.json and result.json."""
        return {"train": self.train, "validation": self.validation}


def validations(output_dir: str, last_step: int) -> Rows:
    """Returns the rows of all validations up to `last_step`, whichever process validated.

    A run may have had a separate evaluator for a part of its steps, which has a file of its own.

    Raises:
      DamagedError: run.json is damaged.
      UnreadableError: a file cannot be read.
    """
    path = tf.io.gfile.join(output_dir, metrics.EVALUATOR_FILE_NAME)
    rows: list[Any] = metrics.read(path)[0] if files.exists(path) else []
    rows = [one for one in rows if one["split"] == VALIDATION and run_file.is_a(one, run_file.Row)]
    rows += run_file.read(output_dir).history["validation"]
    names = run_file.Row.__annotations__
    found = {row["step"]: _numbers({name: row[name] for name in names}) for row in rows}
    return [found[step] for step in sorted(found) if step <= last_step]


def _numbers(row: Any) -> dict[str, Any]:
    """Returns a row from a JSON file, where null replaces a number that is not finite."""
    return {name: math.nan if value is None else value for name, value in row.items()}
