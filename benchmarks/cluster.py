"""Measures what a cluster costs: seconds of a whole job, and of a step against a single process.

    python -m benchmarks cluster mlp --data-dir data --steps 10000 --rounds 3
    python -m benchmarks cluster tax --data-dir data --num-layers 44 20 --batch-sizes 16 --rounds 3

`mlp` times one ps and two trainers, asynchronous and synchronous, from the start of the processes
to the last exit. They train a 100-unit MLP on the 3,072 inputs of CIFAR-10 with batches of 100 and
Adam, as PS/worker demos do. It also times the same job with tf.estimator alone, asynchronous
(benchmarks/peers/stock_estimator.py); its ps never ends by itself and is killed after the trainers.
`tax` compares a step of one ps and one chief with that of a single process. A step with a ps can
take longer since the tasks compute more, or since they wait for each other, so the CPU time of each
task stands beside the wall time. Variants take turns, so that other load on the machine slows all
of them alike; read the ratios. All tasks run on this machine.
"""

import argparse
import functools
import itertools
import pathlib
import statistics
import tempfile
import time
from collections.abc import Sequence
from typing import Any

from benchmarks import runs, tables
from benchmarks.arguments import at_least_one, data_flag, new_parser
from cifar10.config import flags
from testbeds.processes import PROGRAM, ROOT, cluster

_MLP = (
    *("--model=mlp", "--train-batch-size=100", "--optimizer=adam", "--learning-rate=0.001"),
    *("--schedule=constant", "--weight-decay=0", "--use-distortion-for-training=false"),
)
_STOCK_PROGRAM = ROOT / "benchmarks" / "peers" / "stock_estimator.py"
_JOB_SECS = 3600.0  # time limit of a whole job


def main(argv: Sequence[str]) -> None:
    """Runs the rounds and prints a table."""
    parser = new_parser("cluster", __doc__, rounds=3, seconds=5.0, writes=True, reads=True)
    parser.add_argument("kind", choices=("mlp", "tax"))
    parser.add_argument("--steps", type=at_least_one, default=10_000, help="of mlp (10000)")
    parser.add_argument("--num-layers", type=at_least_one, nargs="+", default=[44], help="of tax")
    parser.add_argument("--batch-sizes", type=at_least_one, nargs="+", default=[16], help="of tax")
    options = parser.parse_args(argv)
    if options.kind == "mlp":
        what = "cluster mlp: a whole job of 1 ps and 2 trainers, seconds of each round"
        columns = [("way", "{way}"), ("seconds", "{secs:list}")]
        rows = measure_mlp(options)
    else:
        what = "cluster tax: a step with 1 ps and 1 master against a single process's"
        columns = [("network", "ResNet-{layers}"), ("batch", "{batch_size}")]
        columns += [("alone, ms", "{alone_ms:.1f}"), ("with a ps, ms", "{with_ps_ms:.1f}")]
        columns += [("ratio", "{ratio:.2f}"), ("ratios", "{ratios:list}")]
        columns += [("CPU alone", "{cpu[0]:.1f}"), ("CPU master", "{cpu[1]:.1f}")]
        columns.append(("CPU ps", "{cpu[2]:.1f}"))
        cases = itertools.product(options.num_layers, options.batch_sizes)
        rows = [measure_tax(options, layers, size) for layers, size in cases]
    tables.report(what, columns, rows, options.rounds, argv, options.out)


def measure_mlp(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Times the whole job: asynchronous, synchronous and with tf.estimator alone, in turns."""
    steps = options.steps
    ours = [*_MLP, data_flag(options.data_dir)]
    ours += [f"--{name}-steps={steps}" for name in ("train", "checkpoint")]
    ways = {
        "asynchronous": functools.partial(_job_secs, PROGRAM, [*ours, "--sync=false"]),
        "synchronous": functools.partial(_job_secs, PROGRAM, ours),
        "stock tf.estimator, asynchronous": functools.partial(_job_secs, _STOCK_PROGRAM, [steps]),
    }
    found = runs.in_turns(ways, options.rounds)
    return [{"way": way, "secs": secs} for way, secs in found.items()]


def _job_secs(program: pathlib.Path, words: Sequence[object]) -> float:
    """Runs a program as a chief, a worker and a ps; returns the seconds to the last exit."""
    is_stock = program == _STOCK_PROGRAM
    with tempfile.TemporaryDirectory() as folder:
        output = f"{folder}/output" if is_stock else f"--output-dir={folder}/output"
        started = time.monotonic()
        # The peer imports another one, but runs in the folder.
        how = {"program": program, "variables": {"PYTHONPATH": str(ROOT)}}
        with cluster(pathlib.Path(folder), *words, output, **how) as tasks:
            tasks.start()
            tasks.wait(_JOB_SECS, but=["ps/0"] if is_stock else [])
            return round(time.monotonic() - started, 1)


def measure_tax(options: argparse.Namespace, layers: int, batch_size: int) -> dict[str, Any]:
    """Measures a step with a ps and without, in turns; returns a row of the table."""
    words = [data_flag(options.data_dir), f"--num-layers={layers}"]
    config = flags.parse([*words, f"--train-batch-size={batch_size}"])
    how = {"seconds": options.seconds, "log_steps": runs.log_steps_of(config)}
    ways = {num_ps: functools.partial(runs.measure, config, ps=num_ps, **how) for num_ps in (0, 1)}
    alone, with_ps = runs.in_turns(ways, options.rounds).values()
    wall = [[1000 * batch_size / cost.rate for cost in costs] for costs in (alone, with_ps)]
    ratios = runs.ratios(wall[1], wall[0])
    return {
        "layers": layers,
        "batch_size": batch_size,
        "alone_ms": statistics.median(wall[0]),
        "with_ps_ms": statistics.median(wall[1]),
        "ratio": statistics.median(ratios),
        "ratios": [round(ratio, 3) for ratio in ratios],
        "cpu": [
            1000 * statistics.median(cost.cpu_secs[task] for cost in costs)
            for costs, task in ((alone, "master/0"), (with_ps, "master/0"), (with_ps, "ps/0"))
        ],
    }
