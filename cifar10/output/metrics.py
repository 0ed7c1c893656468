"""metrics.jsonl: the figures that TensorBoard gets, one JSON object a line, for other programs.

A row is appended as soon as it is known. A start that continues a run removes what a kill left half
written, and the rows of steps that are trained again. Each (split, step) has one row.
"""

import json
import time
from collections.abc import Sequence
from typing import Any, Callable, Optional

import tensorflow.compat.v1 as tf

from cifar10.host.files import as_json, readable, sync, write_text
from cifar10.output.digits import rounded_figures

FILE_NAME = "metrics.jsonl"
EVALUATOR_FILE_NAME = "metrics_evaluator.jsonl"  # The rows of a separate evaluator.


class Metrics:
    """The rows of one file, in the order in which they were written.

    Args:
      path: path of the file; None: the rows are kept nowhere.
      rows: the rows that the file has.
      clock: function that returns the time, seconds since 1970.
    """

    def __init__(
        self,
        path: Optional[str] = None,
        rows: Sequence[dict[str, Any]] = (),
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._path, self._clock = path, clock
        self._rows = {(row["split"], row["step"]): row for row in rows}
        self._is_behind = False  # whether the file lacks rows that are here

    def begin(self) -> None:
        """Writes the file with these rows alone."""
        self._write_all()

    def add(self, split: str, step: int, figures: dict[str, Any]) -> None:
        """Appends the row of a split and a step; it replaces an earlier one.

        A file that somebody has moved away is written anew, with all rows.

        Args:
          split: `train`, `validation` or `eval`.
          step: the global step.
          figures: the other columns, by name.
        """
        if self._path is None:
            return
        row = {"split": split, "step": step, **rounded_figures(figures)}
        row["wall_time"] = round(self._clock(), 3)
        is_known = self._rows.pop((split, step), None) is not None
        self._rows[split, step] = row
        if "://" in self._path:
            self._is_behind = True  # Object stores cannot append: `flush` writes the file anew.
        elif is_known or not tf.io.gfile.exists(self._path):
            self._write_all()
        else:
            with tf.io.gfile.GFile(self._path, "a") as file:
                file.write(as_json(row) + "\n")

    def forget_after(self, step: int) -> None:
        """Removes the rows of steps after `step`, which are trained again."""
        kept = {key: row for key, row in self._rows.items() if row["step"] <= step}
        if len(kept) < len(self._rows):
            self._rows = kept
            self._write_all()

    def flush(self) -> None:
        """Waits until all rows are on disk, in a new file if somebody has moved it away."""
        if self._path is None or not self._rows:
            return
        if self._is_behind or not tf.io.gfile.exists(self._path):
            self._write_all()
        else:
            sync(self._path)

    def _write_all(self) -> None:
        assert self._path is not None
        write_text(self._path, "".join(as_json(row) + "\n" for row in self._rows.values()))
        self._is_behind = False


def read(path: str) -> tuple[list[dict[str, Any]], Optional[int]]:
    """Reads the rows of a file, without half a line at its end.

    Args:
      path: path of the file.

    Returns:
      The rows, and the number of the first other line that is no row, from 1; None if all are.

    Raises:
      UnreadableError: the file cannot be read.
    """
    with readable(path), tf.io.gfile.GFile(path, "rb") as file:
        lines = file.read().decode("utf-8", "replace").split("\n")[:-1]
    found = [_row(line) for line in lines]
    damaged = next((number for number, row in enumerate(found, 1) if row is None), None)
    return [row for row in found if row is not None], damaged


def _row(line: str) -> Optional[dict[str, Any]]:
    """Returns the row of a line; None if it is damaged."""
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        return None
    is_row = isinstance(row, dict) and isinstance(row.get("split"), str)
    return row if is_row and type(row.get("step")) is int else None
