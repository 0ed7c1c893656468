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

import functools
import json
import math
import os
import resource
import statistics
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks import arguments, runs, tables
from testbeds.processes import ROOT

VALIDATIONS = 10


def main(argv: Sequence[str]) -> None:
    """Runs the program and prints the table."""
    parser = arguments.new_parser("outside", __doc__, rounds=1, writes=True)
    text = "before each validation (5)"
    parser.add_argument("--steps", type=arguments.at_least_one, default=5, help=text)
    parser.add_argument("--against", type=Path, help="another checkout that takes turns")
    options = arguments.parse(parser, argv)
    folders = [ROOT, *([options.against.resolve()] if options.against else [])]
    words = arguments.words_of(options.config, {"data_dir"})
    words.append(arguments.data_flag(options.config.data_dir))
    ways = {str(folder): functools.partial(run, folder, words, options.steps) for folder in folders}
    found = runs.in_turns(ways, options.rounds)
    rows = rows_of(found)
    columns = [("", "{way}"), *((name, f"{{{name}:spread.2f}}") for name in list(rows[0])[1:])]
    what = "outside: seconds of whole runs, median, lowest and highest"
    tables.report(what, columns, rows, options.rounds, argv, options.out)


def run(checkout: Path, words: Sequence[str], steps: int) -> dict[str, float]:
    """Runs the program of a checkout; returns the seconds of each column of the table.

    Args:
      checkout: folder of `cifar10_main.py`.
      words: its flags.
      steps: the number of steps before each validation.

    Raises:
      BenchmarkError: the run failed; the message has its last line.
    """
    more = [f"--train-steps={VALIDATIONS * steps}", f"--checkpoint-steps={steps}"]
    with tempfile.TemporaryDirectory(prefix="outside-") as output:
        before, began, final = _cpu_secs(), time.time(), math.nan
        own = [*more, "--summary-steps=1", f"--output-dir={output}"]
        for line in runs.run([*words, *own], checkout):
            # It announces the final evaluation.
            final = time.time() if line.startswith("evaluating ") else final
        times = seconds(Path(output), steps, began, final, time.time())
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


def rows_of(found: Mapping[str, Sequence[Mapping[str, float]]]) -> list[dict[str, Any]]:
    """Returns the rows of the table: median, lowest and highest of each column.

    Args:
      found: checkout -> columns of each of its runs, in seconds; the first is compared with others.
    """
    (first, mine), *others = found.items()
    parts = {f"{Path(name).name}, s": times for name, times in found.items()}
    for name, times in others:
        ratios = [{part: run[part] / own[part] for part in run} for run, own in zip(times, mine)]
        parts[f"{Path(name).name} / {Path(first).name}"] = ratios
    return [
        {"way": way, **{name: runs.spread([run[name] for run in times]) for name in times[0]}}
        for way, times in parts.items()
    ]


def _cpu_secs() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime
