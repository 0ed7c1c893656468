"""What a run spends outside of its training steps, by part; optionally beside another checkout.

    python -m benchmarks outside -- --num-layers=20 --train-batch-size=128 --data-dir=data
    python -m benchmarks outside --rounds 3 --against ../old -- --num-layers=20 --data-dir=data

runs `cifar10_main.py` with the flags after `--`, ten validations and only a few steps before each
(--steps), and prints a Markdown table of seconds. With --against, a run of the other checkout
follows each of this one's. The times are those of the rows of metrics.jsonl, of the lines that the
program prints, and of the files that it writes:

  start             until the first step has ended, which includes TensorFlow's work on the graph
  steps             all other steps
  validations       ten checkpoints and their validations
  final evaluation  of the best checkpoint on the eval split
  export, report, exit
  outside           all of them but `steps`
  CPU               user and system time of the whole run
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks import arguments
from benchmarks.errors import BenchmarkError
from benchmarks.table_text import machine_text
from launch.cluster.host_list import ROOT
from testbeds.processes import environment

VALIDATIONS = 10
PARTS = ("start", "steps", "validations", "final evaluation", "export", "report", "exit")
_COLUMNS = (*PARTS, "outside", "CPU")
_FINAL = "evaluating "  # the beginning of the line that announces the final evaluation


def main(argv: Sequence[str]) -> None:
    """Runs the program and prints the table."""
    ours, words = _parse(argv)
    folders = [ROOT, *([ours.against] if ours.against else [])]
    found: dict[Path, list[dict[str, float]]] = {folder: [] for folder in folders}
    for _ in range(ours.rounds):
        for folder in folders:
            found[folder].append(run(folder, words, ours.steps))
    # Imported here since it loads TensorFlow, which would take memory and time from the runs.
    from cifar10.run.environment import hardware, versions

    print(f"{machine_text(hardware(), versions())}; n = {ours.rounds}\n")
    print("\n".join(as_lines({folder.name: times for folder, times in found.items()})))


def _parse(argv: Sequence[str]) -> tuple[argparse.Namespace, list[str]]:
    parser = arguments.new_parser("outside", __doc__)
    parser.add_argument("--rounds", type=arguments.at_least_one, default=1, help="turns (1)")
    parser.add_argument(
        "--steps", type=arguments.at_least_one, default=5, help="before each validation (5)"
    )
    parser.add_argument(
        "--against", type=Path, metavar="FOLDER", help="another checkout that takes turns"
    )
    ours = arguments.parse(parser, argv)
    if ours.against and not (ours.against / "cifar10_main.py").is_file():
        raise BenchmarkError(f"--against {ours.against} has no cifar10_main.py; name a checkout")
    ours.against = ours.against and ours.against.resolve()
    _, words = arguments.split(argv)
    given = [word for word in words if not word.startswith(("--data-dir", "--data_dir"))]
    return ours, [*given, arguments.data_flag(ours.config)]


def run(checkout: Path, words: Sequence[str], steps: int) -> dict[str, float]:
    """Runs the program of a checkout; returns the seconds of each column of the table.

    Args:
      checkout: folder of `cifar10_main.py`.
      words: its flags.
      steps: the number of steps before each validation.

    Raises:
      BenchmarkError: the run failed; the message has its last line.
    """
    with tempfile.TemporaryDirectory(prefix="outside-") as output:
        command = [
            *(sys.executable, "cifar10_main.py", *words),
            *(f"--train-steps={VALIDATIONS * steps}", f"--checkpoint-steps={steps}"),
            *("--summary-steps=1", f"--output-dir={output}"),
        ]
        before, began, final, line = _cpu_secs(), time.time(), 0.0, ""
        with subprocess.Popen(
            command,
            cwd=checkout,
            env=environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        ) as process:
            for line in process.stdout or ():
                if line.startswith(_FINAL):
                    final = time.time()
        ended = time.time()
        if process.returncode:
            raise BenchmarkError(f"`{' '.join(command[1:])}` failed: {line.strip()}")
        times = seconds(Path(output), steps, began, final, ended)
    return {**times, "CPU": _cpu_secs() - before}


def seconds(output: Path, steps: int, began: float, final: float, ended: float) -> dict[str, float]:
    """Returns the seconds of each part of a run, and `outside`.

    Args:
      output: the run's output folder.
      steps: the number of steps before each validation.
      began: the time when the process started, in seconds since 1970, as all times.
      final: the time when the final evaluation began.
      ended: the time when the process ended.
    """
    lines = (output / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    rows: list[dict[str, Any]] = [json.loads(line) for line in lines]
    train = {row["step"]: row["wall_time"] for row in rows if row["split"] == "train"}
    evaluated = next(row["wall_time"] for row in rows if row["split"] == "eval")
    first, last = min(train), max(train)
    pauses = [(step, train[step + 1] - train[step]) for step in range(first, last)]
    step_secs = [secs for step, secs in pauses if step % steps]
    paused = [secs for step, secs in pauses if step % steps == 0]
    # A step follows each validation but the last one.
    hidden = len(paused) * (statistics.median(step_secs) if step_secs else 0.0)
    exported, reported = (os.stat(output / name).st_mtime for name in ("export", "result.json"))
    result = {
        "start": train[first] - began,
        "steps": sum(step_secs) + hidden,
        "validations": sum(paused) - hidden + final - train[last],
        "final evaluation": evaluated - final,
        "export": exported - evaluated,
        "report": reported - exported,
        "exit": ended - reported,
    }
    return {**result, "outside": sum(result.values()) - result["steps"]}


def as_lines(found: Mapping[str, Sequence[Mapping[str, float]]]) -> list[str]:
    """Returns the lines of the table.

    Args:
      found: checkout -> columns of each of its runs, in seconds; the first is compared with others.
    """
    lines = [f"| | {' | '.join(_COLUMNS)} |", "|---" * (len(_COLUMNS) + 1) + "|"]
    for name, runs in found.items():
        cells = [_figures([run[column] for run in runs], ".1f") for column in _COLUMNS]
        lines.append(f"| {name}, s | {' | '.join(cells)} |")
    mine, *others = found.items()
    for name, runs in others:
        cells = [
            _figures([run[column] / own[column] for run, own in zip(runs, mine[1])], ".2f")
            for column in _COLUMNS
        ]
        lines.append(f"| {name} / {mine[0]} | {' | '.join(cells)} |")
    return lines


def _figures(values: Sequence[float], digits: str) -> str:
    """Formats a median, and the range of several values."""
    low, middle, high = min(values), statistics.median(values), max(values)
    if len(values) == 1:
        return f"{middle:{digits}}"
    return f"{middle:{digits}} ({low:{digits}} to {high:{digits}})"


def _cpu_secs() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime
