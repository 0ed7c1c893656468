"""Compares training speed with other ways to train the same network: medians, spread and ratios.

    python -m benchmarks compare --data-dir data --torch-python other/bin/python --out compared.json
    python -m benchmarks compare --data-dir data --precisions bf16

In each round, every network and precision is trained in every way, one right after the other, so
that other load on the machine slows all of them alike; ratios are taken within a round. This
project runs the whole of `train_and_evaluate` with its input pipeline; each peer is a program in
benchmarks/peers/ whose docstring says what it leaves out. All of them time some steps after a
warm-up. Without --torch-python, PyTorch is left out. Each number
is written to standard error at once; at the end there are a table and, with --out, a results file.
Flags after `--` are added to this project's.
"""

import argparse
import functools
import itertools
import json
import subprocess
import sys
from collections.abc import Callable, Sequence

from benchmarks import runs, tables
from benchmarks.arguments import BenchmarkError, at_least_one, data_flag, new_parser, parse
from benchmarks.peers.networks import NETWORKS, PRECISIONS, Network, sized
from cifar10.config import flags
from testbeds.processes import ROOT

# What a case decides for all ways.
_OF_CASES = ("recipe", "model", "num_layers", "train_batch_size", "precision", "data_dir")
# At most so many steps between two progress lines of ours; at least so many lines.
_MAX_LOG_STEPS, _MIN_LINES = 5, 4
_TITLES = {
    "ours": "ours",
    "keras": "Keras `fit`",
    "mirrored": "MirroredStrategy",
    "torch": "PyTorch",
    "ratio": "ours / best peer",
}


def main(argv: Sequence[str]) -> int:
    """Runs the rounds, prints the table and writes the file."""
    arguments = _parse(argv)
    program = [sys.executable, "-m", "benchmarks.peers.tensorflow_step", "--way"]
    commands = {way: [*program, way] for way in ("keras", "mirrored")}
    versions = {}
    if arguments.torch_python:
        versions["torch"] = torch_version(arguments.torch_python)
        commands["torch"] = [arguments.torch_python, "-m", "benchmarks.peers.torch_step"]
    ways: dict[tuple[str, str, str], Callable[[], float]] = {}
    for name, precision in itertools.product(arguments.networks, arguments.precisions):
        network = sized(NETWORKS[name], arguments.batch_size, arguments.steps)
        words = ["--network", name, "--precision", precision]
        words += ["--batch-size", str(network.batch_size), "--steps", str(network.steps)]
        case = f"{name}, {network.batch_size:,}", precision
        ways[(*case, "ours")] = functools.partial(our_rate, network, precision, arguments)
        for peer, command in commands.items():
            ways[(*case, peer)] = functools.partial(last_rate, [*command, *words])
    rates: dict[tuple[str, str], dict[str, list[float]]] = {}
    for (name, precision, way), found in runs.in_turns(ways, arguments.rounds).items():
        rates.setdefault((name, precision), {})[way] = found
    columns = [("network, batch", "{network}"), ("precision", "{precision}")]
    for way in ("ours", *commands, "ratio"):
        digits = ".2f" if way == "ratio" else ",.0f"
        columns.append((_TITLES[way], f"{{{way}:spread{digits}}}"))
    names = ("network", "precision")
    rows = [{**dict(zip(names, case)), **spreads_of(found)} for case, found in rates.items()]
    what = "compare: images/s, median, lowest and highest; ratios by round"
    tables.report(what, columns, rows, arguments.rounds, argv, arguments.out, **versions)
    return 0


def _parse(argv: Sequence[str]) -> argparse.Namespace:
    parser = new_parser("compare", __doc__, rounds=5, writes=True, reads=True)
    parser.add_argument("--networks", nargs="+", choices=list(NETWORKS), default=list(NETWORKS))
    parser.add_argument("--precisions", nargs="+", choices=PRECISIONS, default=PRECISIONS)
    parser.add_argument("--batch-size", type=at_least_one, help="default: each network's own")
    parser.add_argument("--steps", type=at_least_one, help="timed in a run (default: likewise)")
    parser.add_argument("--torch-python", metavar="PATH", help="a Python that has torch")
    return parse(parser, argv, _OF_CASES)


def our_rate(network: Network, precision: str, arguments: argparse.Namespace) -> float:
    """Measures the images/s of cifar10_main.py, its input pipeline included."""
    words = [*network.flags, f"--train-batch-size={network.batch_size}", f"--precision={precision}"]
    words += [data_flag(arguments.data_dir), *arguments.training]
    log_steps = max(1, min(_MAX_LOG_STEPS, network.steps // _MIN_LINES))
    lines = max(_MIN_LINES, network.steps // log_steps)
    return runs.measure(flags.parse(words), least=lines, log_steps=log_steps).rate


def last_rate(command: Sequence[str]) -> float:
    """Runs a command and returns images_per_sec from its last line of output, a JSON object.

    Raises:
      BenchmarkError: the command failed.
    """
    done = subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True)
    if done.returncode:
        why = done.stderr.strip().splitlines()[-1:] or [f"exit code {done.returncode}"]
        raise BenchmarkError(f"{' '.join(command)} failed: {why[0]}")
    return float(json.loads(done.stdout.splitlines()[-1])["images_per_sec"])


def torch_version(python: str) -> str:
    """Returns the version of PyTorch that a Python has.

    Raises:
      BenchmarkError: it cannot run, or has none.
    """
    command = [python, "-c", "import torch; print(torch.__version__)"]
    try:
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        rule = "must name a Python that has torch"
        raise BenchmarkError(f"--torch-python {rule}, got {python}; install it there") from None


def spreads_of(rates: dict[str, list[float]]) -> dict[str, list[float]]:
    """Returns each way's spread, and as `ratio` that of ours by the round's fastest peer."""
    best = [max(peers) for peers in zip(*(found for way, found in rates.items() if way != "ours"))]
    columns = {**rates, "ratio": runs.ratios(rates["ours"], best)}
    return {name: runs.spread(values) for name, values in columns.items()}
