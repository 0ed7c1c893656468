"""Trains the first steps of a run: starts cifar10_main.py and stops it after a given step.

The run is stopped early, not configured to be shorter, so that a schedule over the whole run stays
unchanged. --checkpoint-steps makes the program save and validate a checkpoint after the last wanted
step; after that it gets SIGTERM. history.json holds the figures of the steps.
"""

import json
import subprocess
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.errors import BenchmarkError
from testbeds.processes import command, environment

_ENDED_BY_SIGTERM = (-15, 143)
_LAST_LINES = 3


class TrainingFailedError(Exception):
    """Training failed: the program ended with exit code 1, or a loss is not finite."""


class Beginning(NamedTuple):
    """The figures of the first steps of a run.

    Attributes:
      rows: training rows of history.json, one for each --log-steps steps.
      validation: validation row of history.json after the last step.
    """

    rows: tuple[dict[str, Any], ...]
    validation: dict[str, Any]


def train_beginning(words: Sequence[str], steps: Sequence[int], folder: Path) -> Beginning:
    """Trains up to the last of `steps` and stops the run there.

    Args:
      words: flags of cifar10_main.py, without --output-dir, --log-steps and --checkpoint-steps.
      steps: the last step of each row, equally far apart; the first row begins at step 2.
      folder: output folder of the run; must be empty.

    Raises:
      TrainingFailedError: training failed, e.g. its loss is not finite.
      BenchmarkError: the program refused its flags, or its run ended before the last of `steps`.
    """
    rows = [f"--log-steps={steps[0] - 1}", f"--checkpoint-steps={steps[-1]}"]
    words = command(*words, f"--output-dir={folder}", *rows)
    last_lines: deque[str] = deque(maxlen=_LAST_LINES)
    with subprocess.Popen(
        words, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        try:
            for line in process.stdout or ():
                last_lines.append(line.strip())
                if _is_validation(line, steps[-1]):
                    process.terminate()
            code = process.wait()
        finally:
            process.kill()
    said = " / ".join(last_lines)
    if code == 1:
        raise TrainingFailedError(said)
    if code not in (0, *_ENDED_BY_SIGTERM):
        raise BenchmarkError(f"`{' '.join(words[1:])}` ended with {code}: {said}")
    # Imported here since it loads TensorFlow, which starting and ending a program does not need.
    from cifar10.output.history import FILE_NAME

    return read_beginning(folder / FILE_NAME, steps)


def read_beginning(path: Path, steps: Sequence[int]) -> Beginning:
    """Reads the rows that end at `steps`, and the validation after the last, from a history.json.

    Raises:
      BenchmarkError: a row or the validation is missing.
    """
    history = json.loads(path.read_text(encoding="utf-8"))
    rows = {row["step"]: row for row in history["train"]}
    validations = {row["step"]: row for row in history["validation"]}
    missing = [step for step in steps if step not in rows]
    if missing or steps[-1] not in validations:
        raise BenchmarkError(
            f"a run must be at least as long as its curve, {steps[-1]:,} steps and their "
            f"validation; this one ended at step {max(rows, default=0):,}: fewer --rows make the "
            "curve shorter"
        )
    return Beginning(tuple(rows[step] for step in steps), validations[steps[-1]])


def _is_validation(line: str, step: int) -> bool:
    return line.startswith("validation accuracy ") and f"{step:,}" in line.split()
