"""The metrics measured during training: the rows of metrics.jsonl, by which a run goes on, too."""

import json
import math
import time
from collections.abc import Mapping
from typing import Any, Optional

import tensorflow.compat.v1 as tf

from cifar10.errors import DamagedError
from cifar10.host import files
from cifar10.host.files import as_json, read_bytes, write_text
from cifar10.output import run_file
from cifar10.schema import TRAIN, VALIDATION

FILE_NAME = "metrics.jsonl"
EVALUATOR_FILE_NAME = "metrics_evaluator.jsonl"  # The rows of a separate evaluator.

_NEEDED = {"epoch", "loss", "accuracy", "seconds"}  # of rows of training and validations

Row = dict[str, Any]  # docs/outputs.md lists the columns
_ByKey = dict[tuple[str, int], Row]


class Metrics:
    """The rows of an output folder: of training, validations and evaluations.

    A process writes a file of its own, one JSON object a line, and knows the rows of the others: a
    run may have had a separate evaluator for a part of its steps. Each (split, step) has one row.

    Args:
      output_dir: path of the output folder.
      name: name of this process's file in it, FILE_NAME or EVALUATOR_FILE_NAME.
      last_step: the step after which rows are left out, since they are trained again.

    Raises:
      DamagedError: a file has a line that is no row.
    """

    def __init__(self, output_dir: str, name: str = FILE_NAME, last_step: float = math.inf) -> None:
        self._folder, self._path = output_dir, tf.io.gfile.join(output_dir, name)
        self._other = FILE_NAME if name == EVALUATOR_FILE_NAME else EVALUATOR_FILE_NAME
        self._rows = _read(output_dir, name, last_step)
        self.read_others(last_step)

    def read_others(self, last_step: float) -> None:
        """Reads the rows of the other process up to a step."""
        self._others = _read(self._folder, self._other, last_step)

    def of(self, split: str) -> list[Row]:
        """Returns the rows of a split in the order of steps; those of this process come first."""
        found = {**self._others, **self._rows}
        return [found[key] for key in sorted(found) if key[0] == split]

    @property
    def seconds(self) -> float:
        """Seconds of training up to its last row, without pauses for validation."""
        return float(([0.0] + [row["seconds"] for row in self.of(TRAIN)])[-1])

    def add(self, split: str, step: int, **metrics: Any) -> None:
        """Adds the row of a split and a step, and writes it; it replaces an earlier one.

        Args:
          split: `train`, `validation` or `eval`.
          step: the global step.
          **metrics: the other columns, by name.
        """
        row = {"split": split, "step": step, **rounded_values(metrics)}
        row["wall_time"] = round(time.time(), 3)
        is_known = self._rows.pop((split, step), None) is not None
        self._rows[split, step] = row
        if split != TRAIN or is_known:
            self.save()
        elif "://" not in self._path:  # Object stores cannot append.
            with tf.io.gfile.GFile(self._path, "a") as file:
                file.write(as_json(row) + "\n")

    def forget_after(self, step: int) -> None:
        """Removes the rows of steps after `step`, which are trained again."""
        kept, self._others = _up_to(step, self._rows), _up_to(step, self._others)
        if len(kept) < len(self._rows):
            self._rows = kept
            self.save()

    def save(self) -> None:
        """Writes all rows to disk, in a new file; somebody may have moved the other one away."""
        write_text(self._path, "".join(as_json(row) + "\n" for row in self._rows.values()))


def _read(output_dir: str, name: str, last_step: float) -> _ByKey:
    """Reads the rows of a file, if there is one, without half a line at its end."""
    path = tf.io.gfile.join(output_dir, name)
    if not files.exists(path):
        return {}
    found: _ByKey = {}
    lines = read_bytes(path).decode("utf-8", "replace").split("\n")[:-1]
    for number, line in enumerate(lines, 1):
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            row = None
        values = {**row} if isinstance(row, dict) else {}
        split, step = values.pop("split", None), values.get("step")
        if (
            type(step) is not int
            or not run_file.is_a(split, str)
            or not run_file.is_a(values, dict[str, Optional[float]])
            or (split in (TRAIN, VALIDATION) and not values.keys() >= _NEEDED)
        ):
            raise DamagedError(path, f"row {number}")
        # Null stands for a number that is not finite.
        numbers = {name: math.nan if value is None else value for name, value in values.items()}
        found[split, step] = {"split": split, **numbers}
    return _up_to(last_step, found)


def _up_to(step: float, rows: _ByKey) -> _ByKey:
    return {key: row for key, row in rows.items() if row["step"] <= step}


def rounded(value: float) -> float:
    """Returns a number with six significant digits, as many as people write: 0.1 for a float32."""
    return float(f"{float(value):.6g}")


def rounded_values(metrics: Mapping[str, Any]) -> dict[str, Any]:
    """Rounds the finite floats of a row of metrics; all other values stay as they are."""
    return {
        name: rounded(value) if isinstance(value, float) and math.isfinite(value) else value
        for name, value in metrics.items()
    }
