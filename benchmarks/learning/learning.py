"""Measures learning curves of whole runs: default settings, batch sizes, one process and clusters.

    python -m benchmarks learning --data-dir data --keep runs --write

trains the default settings with batches of 16 to the end, the tutorial's settings with the same
batches for an epoch, and batches of 16 to 1,024 for one or two epochs, both in one process and with
two trainers and a parameter server, synchronous and asynchronous. This takes hours on two cores.
Each run is cifar10_main.py itself, with a folder of its own in --keep: a stopped run resumes, and a
complete run is not trained again.

--write puts the curves into benchmarks/results/learning/ and draws the pictures in docs/pictures/;
`python -m benchmarks tables` makes the table of docs/recipes.md from the curves.
"""

import json
import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.arguments import new_parser
from benchmarks.errors import BenchmarkError
from benchmarks.learning.picture import draw_batches, draw_whole
from benchmarks.table_text import as_markdown
from cifar10.input.records import open_records
from cifar10.schema import TRAIN
from launch.cluster.host_list import ROOT
from testbeds.errors import TestbedError
from testbeds.processes import cluster, run_alone

RESULTS = ROOT / "benchmarks" / "results" / "learning"
PICTURES = ROOT / "docs" / "pictures"
_EPOCHS = {16: 1, 64: 1, 128: 1, 1024: 2}
_RUN_SECS = 24 * 3600.0  # time limit of a cluster's run
_ROWS = 20  # approximate number of rows of a short run's curve


class Way(NamedTuple):
    """Which processes train, and how they update the weights.

    Attributes:
      text: description for tables and pictures.
      words: flags of cifar10_main.py.
      in_cluster: whether a master, a worker and a ps train, not one process.
      synchronous_trainers: number of trainers whose batches make up a global step.
    """

    text: str
    words: tuple[str, ...] = ()
    in_cluster: bool = False
    synchronous_trainers: int = 1


class Run(NamedTuple):
    """A run of cifar10_main.py.

    Attributes:
      name: name of the run's folder and of its results file.
      words: flags of cifar10_main.py, without folders.
      way: the processes that train.
    """

    name: str
    words: tuple[str, ...]
    way: Way


_ALONE = Way("one process")
_WAYS = {
    "alone": _ALONE,
    "sync": Way("two trainers, synchronous", (), True, 2),
    "async": Way("two trainers, asynchronous", ("--sync=false",), True),
}


def runs(images: int) -> tuple[Run, ...]:
    """Returns the runs in the order in which they are trained.

    Args:
      images: number of training images.
    """
    batch = "--train-batch-size=16"
    epoch = f"--train-steps={math.ceil(images / 16)}"
    whole, tutorial = (batch,), ("--recipe=tutorial", batch, epoch)
    found = [Run("whole", whole, _ALONE), Run("tutorial", tutorial, _ALONE)]
    for size, epochs in _EPOCHS.items():
        words = (f"--train-batch-size={size}", f"--train-epochs={epochs}")
        for kind, way in _WAYS.items():
            step = size * way.synchronous_trainers
            rows = f"--log-steps={max(1, round(epochs * images / step / _ROWS))}"
            found.append(Run(_name(kind, size), (*words, *way.words, rows), way))
    return tuple(found)


def _name(kind: str, size: int) -> str:
    return f"{kind}-{size}"


NAMES = ("whole", "tutorial", *(_name(kind, size) for size in _EPOCHS for kind in _WAYS))


def main(argv: Sequence[str]) -> int:
    """Trains the runs that are missing, and prints the figures of each."""
    parser = new_parser("learning", __doc__)
    parser.add_argument("--data-dir", default="data")
    parser.add_argument("--keep", type=Path, default="runs", help="folder of the runs' folders")
    parser.add_argument("--runs", nargs="+", choices=NAMES, default=NAMES)
    parser.add_argument("--write", action="store_true", help="renew curves and pictures")
    arguments = parser.parse_args(argv)
    data_dir = os.path.abspath(arguments.data_dir)
    for run in runs(open_records(data_dir).counts[TRAIN]):
        if run.name not in arguments.runs:
            continue
        result = _result(run, data_dir, arguments.keep.resolve() / run.name)
        curve = curve_of(run, result)
        print(f"{run.name}: {_describe(curve)}", flush=True)
        if arguments.write:
            RESULTS.mkdir(parents=True, exist_ok=True)
            text = json.dumps(curve, indent=1) + "\n"
            (RESULTS / f"{run.name}.json").write_text(text, encoding="utf-8")
    if arguments.write:
        draw(RESULTS, PICTURES)
    return 0


def _result(run: Run, data_dir: str, folder: Path) -> dict[str, Any]:
    """Returns the content of a run's result.json, after training the run if there is none.

    Raises:
      BenchmarkError: the run failed, did not complete, or `folder` is of a run with other flags.
    """
    path = folder / "result.json"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        words = [*run.words, f"--data-dir={data_dir}", f"--output-dir={folder}"]
        try:
            _train(words, folder, run.way.in_cluster)
        except TestbedError as error:
            raise BenchmarkError(f"{run.name}: {error}") from None
    result: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    if result["status"] != "completed":
        raise BenchmarkError(f"{run.name} has not come to its end; remove {folder}")
    missing = [word for word in (*run.words, f"--data-dir={data_dir}") if word not in _said(result)]
    if missing:
        raise BenchmarkError(
            f"{folder} is of another run, without {missing[0]}; name another --keep"
        )
    return result


def _train(words: Sequence[str], folder: Path, in_cluster: bool) -> None:
    if not in_cluster:
        run_alone(folder, words)
        return
    with cluster(folder, *words) as tasks:
        tasks.start()
        tasks.wait(_RUN_SECS)


def _said(result: dict[str, Any]) -> list[str]:
    """Returns the words of a run's command, with `--name value` also as `--name=value`."""
    words = result["command"]
    return [*words, *(f"{name}={value}" for name, value in zip(words, words[1:]))]


def curve_of(run: Run, result: dict[str, Any]) -> dict[str, Any]:
    """Returns the content of a run's results file.

    Args:
      run: the run.
      result: the content of the run's result.json.

    Returns:
      The command, the machine, the data, the columns of the history and the eval accuracy.
    """
    rows, validations = result["history"]["train"], result["history"]["validation"]
    return {
        "command": f"python cifar10_main.py {' '.join(run.words)}",
        "way": run.way.text,
        "model": result["model"],
        "batch_size": result["configuration"]["train_batch_size"],
        "measured": result["finished_at"][:10],
        "hardware": result["hardware"],
        "versions": result["versions"],
        "data": result["data"]["source"],
        "steps": result["figures"]["global_step"],
        "epoch": [round(row["epoch"], 4) for row in rows],
        "loss": [round(row["loss"], 4) for row in rows],
        "accuracy": [round(row["accuracy"], 4) for row in rows],
        "learning_rate": [round(row["learning_rate"], 6) for row in rows],
        "validation_epoch": [round(row["epoch"], 4) for row in validations],
        "validation_accuracy": [round(row["accuracy"], 4) for row in validations],
        "eval_accuracy": round(result["figures"]["eval_accuracy"], 4),
    }


def read_curves(folder: Path) -> dict[str, dict[str, Any]]:
    """Returns the saved curves by the names of their runs, in the order of NAMES.

    Raises:
      BenchmarkError: the folder has no curves.
    """
    paths = {name: folder / f"{name}.json" for name in NAMES}
    found = {
        name: json.loads(path.read_text(encoding="utf-8"))
        for name, path in paths.items()
        if path.exists()
    }
    if not found:
        raise BenchmarkError(f"{folder} has no curves; python -m benchmarks learning --write")
    return found


def draw(results: Path, pictures: Path) -> None:
    """Draws the documents' pictures from the saved curves."""
    curves = read_curves(results)
    pictures.mkdir(parents=True, exist_ok=True)
    if {"whole", "tutorial"} <= curves.keys():
        draw_whole(curves["whole"], curves["tutorial"], pictures / "learning-whole.svg")
    by_size = {
        size: [curves[name] for kind in _WAYS if (name := _name(kind, size)) in curves]
        for size in _EPOCHS
    }
    if any(by_size.values()):
        there = {size: found for size, found in by_size.items() if found}
        draw_batches(there, pictures / "learning-batches.svg")


_COLUMNS = (
    ("command", "`{command}`"),
    ("trained by", "{way}"),
    ("steps", "{steps:,}"),
    ("first loss", "{first_loss:.2f}"),
    ("last loss", "{last_loss:.2f}"),
    ("validation accuracy", "{validation:.1%}"),
    ("eval accuracy", "{eval_accuracy:.1%}"),
)


def learning_table(folder: Path) -> str:
    """Returns a Markdown table with the command and the figures of each run."""
    rows = []
    for curve in read_curves(folder).values():
        words = [one for one in curve["command"].split() if not one.startswith("--log-steps")]
        figures = {
            "command": " ".join(words[2:]),
            "first_loss": curve["loss"][0],
            "last_loss": curve["loss"][-1],
            "validation": curve["validation_accuracy"][-1],
        }
        rows.append({**curve, **figures})
    return as_markdown(_COLUMNS, rows)


def _describe(curve: dict[str, Any]) -> str:
    return (
        f"{curve['steps']:,} steps, loss {curve['loss'][0]:.3f} to {curve['loss'][-1]:.3f}, "
        f"validation accuracy {curve['validation_accuracy'][-1]:.3f}, eval accuracy "
        f"{curve['eval_accuracy']:.3f}"
    )
