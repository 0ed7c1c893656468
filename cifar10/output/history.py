"""The figures measured during training: rows of curves in run.json, and of metrics.jsonl."""

import dataclasses
import json
import math
import time
from collections.abc import Iterable, Mapping
from typing import Any, Callable, Optional, TypedDict

import tensorflow.compat.v1 as tf

from cifar10.errors import DamagedError
from cifar10.host import files
from cifar10.host.files import as_json, write_text
from cifar10.output import recovery, run_file

METRICS_FILE_NAME = "metrics.jsonl"
EVALUATOR_FILE_NAME = "metrics_evaluator.jsonl"  # The rows of a separate evaluator.

Rows = list[dict[str, Any]]


class _Key(TypedDict):
    split: str
    step: int


class Metrics:
    """The rows of metrics.jsonl, one JSON object a line, for other programs.

    A row is appended as soon as it is known. Each (split, step) has one row.

    Args:
      path: path of the file; None: the rows are kept nowhere.
      rows: the rows that the file has.
    """

    def __init__(self, path: Optional[str] = None, rows: Iterable[dict[str, Any]] = ()) -> None:
        self._path = path
        self._rows = {(row["split"], row["step"]): row for row in rows}

    @classmethod
    def load(
        cls, path: str, checkpoint: Optional[str], last_step: int, say: Callable[[str], None]
    ) -> "Metrics":
        """Reads the rows up to `last_step`, and removes the others, which are trained again.

        The file of an older run is renamed.

        Args:
          path: path of the file.
          checkpoint: the checkpoint from which training continues; None: a new run begins.
          last_step: its step.
          say: function that prints a line.

        Raises:
          DamagedError: the file has a line that is no row.
        """
        if checkpoint is None:
            recovery.set_older_aside([path], say)
        kept = cls(path, [row for row in read_rows(path) if row["step"] <= last_step])
        if files.exists(path):
            kept.flush()
        return kept

    def add(self, split: str, step: int, figures: dict[str, Any]) -> None:
        """Appends the row of a split and a step; it replaces an earlier one.

        Args:
          split: `train`, `validation` or `eval`.
          step: the global step.
          figures: the other columns, by name.
        """
        if self._path is None:
            return
        row = {"split": split, "step": step, **rounded_figures(figures)}
        row["wall_time"] = round(time.time(), 3)
        is_known = self._rows.pop((split, step), None) is not None
        self._rows[split, step] = row
        if is_known:
            self.flush()
        elif "://" not in self._path:  # Object stores cannot append.
            with tf.io.gfile.GFile(self._path, "a") as file:
                file.write(as_json(row) + "\n")

    def forget_after(self, step: int) -> None:
        """Removes the rows of steps after `step`, which are trained again."""
        kept = {key: row for key, row in self._rows.items() if row["step"] <= step}
        if len(kept) < len(self._rows):
            self._rows = kept
            self.flush()

    def flush(self) -> None:
        """Writes all rows to disk, in a new file; somebody may have moved the other one away."""
        if self._path is not None:
            write_text(self._path, "".join(as_json(row) + "\n" for row in self._rows.values()))


def read_rows(path: str) -> Rows:
    """Reads the rows of a metrics.jsonl, if there is one, without half a line at its end.

    Raises:
      DamagedError: another line is no row.
    """
    if not files.exists(path):
        return []
    with tf.io.gfile.GFile(path, "rb") as file:
        lines = file.read().decode("utf-8", "replace").split("\n")[:-1]
    found: Rows = []
    for number, line in enumerate(lines, 1):
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            row = None
        if not run_file.is_a(row, _Key):
            raise DamagedError(path, f"line {number}")
        found.append(row)
    return found


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
      DamagedError: one of the files is damaged.
    """
    kept = read_rows(tf.io.gfile.join(output_dir, EVALUATOR_FILE_NAME))
    rows: list[Any] = [one for one in kept if run_file.is_a(one, run_file.Row)]
    rows += run_file.read(output_dir).history["validation"]
    names = run_file.Row.__annotations__
    found = {row["step"]: _numbers({name: row[name] for name in names}) for row in rows}
    return [found[step] for step in sorted(found) if step <= last_step]


def _numbers(row: Any) -> dict[str, Any]:
    """Returns a row from a JSON file, where null replaces a number that is not finite."""
    return {name: math.nan if value is None else value for name, value in row.items()}


def rounded(value: float) -> float:
    """Returns a number with six significant digits, as many as people write: 0.1 for a float32."""
    return float(f"{float(value):.6g}")


def rounded_figures(figures: Mapping[str, Any]) -> dict[str, Any]:
    """Rounds the finite floats of a row of figures; all other values stay as they are."""
    return {
        name: rounded(value) if isinstance(value, float) and math.isfinite(value) else value
        for name, value in figures.items()
    }
