"""Measures what a cluster costs: seconds of a whole job, and of a step against a single process.

    python -m benchmarks cluster mlp --data-dir data --steps 10000 --rounds 3
    python -m benchmarks cluster tax --data-dir data --num-layers 44 20 --batch-sizes 16 --rounds 3

`mlp` times one ps and two trainers, asynchronous and synchronous, from the start of the processes
to the last exit. They train a 100-unit MLP on the 3,072 inputs of CIFAR-10 with batches of 100 and
Adam, as PS/worker demos do. It also times the same job with tf.estimator alone, asynchronous
(stock_estimator.py in this folder); its ps never ends by itself and is killed after the trainers.
`tax` compares a step of one ps and one master with that of a single process: wall time, and CPU
time of each task. With `--pinned`, the ps has one core and the trainer another.
Variants take turns, so that other load on the machine slows all of them alike; read the ratios. The
first line names the machine, each run prints a JSON line, and a table comes last. All tasks run on
this machine.
"""

import json
import os
import pathlib
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.arguments import at_least_one, new_parser
from benchmarks.clusters.tax import JOB_SECS, cluster_job, measure_tax
from benchmarks.table_text import machine_text
from cifar10.run.environment import hardware, versions
from testbeds.processes import cluster

_MLP = (
    "--model=mlp",
    "--train-batch-size=100",
    "--optimizer=adam",
    "--learning-rate=0.001",
    "--schedule=constant",
    "--weight-decay=0",
    "--use-distortion-for-training=false",
)
_STOCK = "stock tf.estimator, asynchronous"
_STOCK_PROGRAM = pathlib.Path(__file__).with_name("stock_estimator.py")


def main(argv: Sequence[str]) -> None:
    """Runs the rounds and prints a table."""
    parser = new_parser("cluster", __doc__)
    kinds = parser.add_subparsers(dest="kind", required=True)
    mlp, tax = kinds.add_parser("mlp"), kinds.add_parser("tax")
    for kind, steps in ((mlp, 10_000), (tax, 200)):
        kind.add_argument("--data-dir", type=pathlib.Path, default="data")
        kind.add_argument("--steps", type=at_least_one, default=steps)
        kind.add_argument("--rounds", type=at_least_one, default=3)
    tax.add_argument("--num-layers", type=at_least_one, nargs="+", default=[44])
    tax.add_argument("--batch-sizes", type=at_least_one, nargs="+", default=[16])
    tax.add_argument("--pinned", action="store_true", help="one core for each of the two tasks")
    arguments = parser.parse_args(argv)
    steps = arguments.steps
    flags = [f"--data-dir={arguments.data_dir.resolve()}", f"--train-steps={steps}"]
    flags.append(f"--checkpoint-steps={steps}")
    print(machine_text(hardware(), versions()), flush=True)
    if arguments.kind == "mlp":
        Console().print(measure_mlp(flags, steps, arguments.rounds))
    else:
        flags.append(f"--log-steps={max(1, steps // 10)}")
        networks = [(one, size) for one in arguments.num_layers for size in arguments.batch_sizes]
        Console().print(measure_tax(flags, networks, arguments.rounds, arguments.pinned))


def measure_mlp(flags: Sequence[str], steps: int, rounds: int) -> Table:
    """Times the whole job: asynchronous, synchronous and with tf.estimator alone, in turns."""
    mlp = [*_MLP, *flags]
    ways: dict[str, Callable[[], dict[str, Any]]] = {
        "asynchronous": lambda: _whole_job([*mlp, "--sync=false"]),
        "synchronous": lambda: _whole_job(mlp),
        _STOCK: lambda: _stock_job(steps),
    }
    found: dict[str, list[float]] = {name: [] for name in ways}
    for index in range(rounds):
        for mode, run in ways.items():
            load = os.getloadavg()[0]
            figures = run()
            found[mode].append(figures["seconds"])
            _print_line(round=index + 1, mode=mode, **figures, load=load)
    table = Table("mode", "median s", "lowest", "highest", "n", title="1 ps, 2 trainers: whole job")
    for mode, seconds in found.items():
        numbers = (statistics.median(seconds), min(seconds), max(seconds))
        table.add_row(mode, *(f"{number:.1f}" for number in numbers), str(len(seconds)))
    return table


def _whole_job(flags: Sequence[str]) -> dict[str, Any]:
    """Runs cifar10_main.py as a master, a worker and a ps; returns the job's figures."""
    started = time.monotonic()
    with cluster_job(flags) as (tasks, output):
        tasks.start()
        tasks.wait(JOB_SECS)
        seconds = time.monotonic() - started
        figures = json.loads((output / "result.json").read_text())["figures"]
    return {
        "seconds": round(seconds, 2),
        "global_step": figures["global_step"],
        "training_seconds": round(figures["training_seconds"], 2),
        "eval_accuracy": figures["eval_accuracy"],
    }


def _stock_job(steps: int) -> dict[str, Any]:
    """Runs the job with tf.estimator alone; returns its seconds."""
    with tempfile.TemporaryDirectory() as folder:
        words = [steps, f"{folder}/output"]
        started = time.monotonic()
        with cluster(pathlib.Path(folder), *words, program=_STOCK_PROGRAM) as tasks:
            tasks.start()
            tasks.wait(JOB_SECS, but=["ps/0"])
            return {"seconds": round(time.monotonic() - started, 2)}


def _print_line(**figures: Any) -> None:
    print(json.dumps(figures), flush=True)
