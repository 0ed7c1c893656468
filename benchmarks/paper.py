"""Accuracy of whole trainings by the paper's schedule, this project's beside PyTorch's.

    python cifar10_main.py --recipe paper --num-layers 20 --data-dir data --output-dir ours-1
    PYTHON_WITH_TORCH -m benchmarks.peers.torch_paper --data-dir data --output-dir torch-1
    python -m benchmarks paper --ours ours-1 --torch torch-1 --torch-python PATH --out FILE

reads trainings that have ended, any number of seeds of either, and prints a table of the accuracies
of their last weights on the eval split, with the paper's own. A training of ours itself ends with
an evaluation of the best validated weights, so this command evaluates the last ones with the
records of --data-dir. Run it on the machine that has trained. With --out in benchmarks/results/,
`python -m benchmarks tables` renews the table in docs/results.md and draws the validations.
"""

import json
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import cifar10
from benchmarks import arguments, tables
from benchmarks.arguments import BenchmarkError
from benchmarks.compare import torch_version
from benchmarks.converge import describe_images

# Table 6: an error of 8.75 %.
_PAPER = {"way": "He et al. 2015, on the original images", "steps": 64_000, "n": "not stated"}
_BATCH = 128
_COLUMNS = (
    *(("ResNet-20 trained by", "{way}"), ("steps", "{steps:,}"), ("n", "{n}")),
    *(("eval accuracy, mean", "{mean:.2%}"), ("standard deviation", "{std:.2%}")),
)


def main(argv: Sequence[str]) -> None:
    """Prints the table and writes the file."""
    parser = arguments.new_parser("paper", __doc__, writes=True, reads=True)
    folders: dict[str, Any] = {"type": Path, "nargs": "+", "default": [], "metavar": "DIR"}
    parser.add_argument("--ours", help="output folders of cifar10_main.py", **folders)
    parser.add_argument("--torch", help="output folders of the peer", **folders)
    parser.add_argument("--torch-python", metavar="PATH", default="python", help="that of --torch")
    text = "what has been done to the archive's images (original)"
    parser.add_argument("--images", default="original", help=text)
    options = parser.parse_args(argv)
    versions = {"torch": torch_version(options.torch_python)} if options.torch else {}
    counts = describe_images(options.data_dir)[1]["records"]
    ways = {"`cifar10_main.py`": options.ours, "PyTorch": options.torch}
    epoch = counts["train"] / _BATCH
    rows = [row_of(way, ways[way], options.data_dir, epoch) for way in ways if ways[way]]
    data = f"CIFAR-10, {options.images}: " + ", ".join(f"{n:,} {key}" for key, n in counts.items())
    what = "paper: eval accuracy of the last weights, and the accuracies of validations"
    n = ", ".join(str(row["n"]) for row in rows)
    rows.append({**_PAPER, "mean": 0.9125, "std": None})
    tables.report(what, _COLUMNS, rows, n, argv, options.out, data, **versions)


def row_of(way: str, folders: Sequence[Path], data_dir: str, epoch: float) -> dict[str, Any]:
    """Returns the row of the runs of several seeds, with the `curves` of their validations.

    Args:
      way: what has trained.
      folders: the output folder of each run.
      data_dir: the folder of the records.
      epoch: the steps of an epoch.

    Raises:
      BenchmarkError: a run has not ended, or they end at different steps.
    """
    each, curves, ends = [], [], set()
    for folder in folders:
        path = folder / "metrics.jsonl"
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        rows = [row for row in map(json.loads, lines) if row["split"] != "train"]
        if not rows or rows[-1]["split"] != "eval":
            raise BenchmarkError(f"{folder} must hold a training that has ended; start it again")
        *past, last = rows
        ends.add(step := past[-1]["step"])
        curves.append([{"epoch": row["step"] / epoch, "accuracy": row["accuracy"]} for row in past])
        if last["step"] != step:  # It is of the best validated weights.
            paths = {"output_dir": str(folder), "checkpoint": str(folder / f"model.ckpt-{step}")}
            last = cifar10.evaluate(**paths, data_dir=data_dir)
        each.append(round(last["accuracy"], 6))
    if len(ends) > 1:
        raise BenchmarkError(f"{way}: all runs must end at the same step, got {sorted(ends)}")
    std = statistics.stdev(each) if len(each) > 1 else None
    row = {"way": way, "steps": ends.pop(), "n": len(each), "mean": statistics.fmean(each)}
    return {**row, "std": std, "each": each, "curves": curves}
