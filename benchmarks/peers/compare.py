"""Compares training speed with other ways to train the same network: medians, spread and ratios.

    python -m benchmarks compare --data-dir data --torch-python other/bin/python --out compared
    python -m benchmarks compare --data-dir data --precisions bf16 --out pairs -- --kernels pairs

In each round, every network and precision is trained in every way, one right after the other, so
that other load on the machine slows all of them alike; ratios are taken within a round. This
project runs the whole of `train_and_evaluate` with its input pipeline (`benchmarks.scaling.jobs`);
each peer is a program in benchmarks/peers/ whose docstring says what it leaves out. All of them
time some steps after a warm-up. A peer that is not installed is left out, with a message.

The folder OUT gets compare.json, compare.md and compare.png, which are rewritten whenever a network
has been trained in all ways. Results that OUT already holds are kept: a stopped run resumes, other
--networks or --precisions add to the table, and --rounds is the total number of rounds for each.
Flags after `--` are added to this project's; they are a condition, like the hardware.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Optional

from rich.console import Console

from benchmarks.arguments import at_least_one, new_parser, split, training_config
from benchmarks.errors import BenchmarkError
from benchmarks.peers.networks import NETWORKS, PRECISIONS
from benchmarks.peers.report import OURS, Row, read_rows, rounds_of, write_report
from benchmarks.scaling import jobs
from benchmarks.scaling.measured_run import Run
from cifar10.config import flags
from cifar10.host.cpu import cpu_flags
from cifar10.ops.kernels import library
from cifar10.run.environment import hardware, versions
from cifar10.settings import flag_name
from launch.cluster.host_list import ROOT, on_this_machine

KERAS, MIRRORED, TORCH = "Keras fit", "MirroredStrategy", "PyTorch"
# What a case decides for all ways.
_OF_CASES = ("recipe", "model", "num_layers", "train_batch_size", "precision", "data_dir")
# At most so many steps between two progress lines of ours; at least so many intervals between them.
_MAX_LOG_STEPS, _MIN_GAPS = 5, 3


class Case(NamedTuple):
    """What is trained: a network, images per step, `fp32` or `bf16`, and the steps to time."""

    network: str
    batch_size: int
    precision: str
    steps: int


class Peer(NamedTuple):
    """A program that trains in another way: its Python interpreter and its module."""

    python: str
    module: str

    def rate(self, case: Case) -> float:
        """Runs the program and returns the images/s that it reports.

        Raises:
          BenchmarkError: the program failed.
        """
        words = ["--network", case.network, "--precision", case.precision]
        words += ["--batch-size", str(case.batch_size), "--steps", str(case.steps)]
        return last_rate([self.python, "-m", self.module, *words])


def main(argv: Sequence[str]) -> int:
    """Runs the rounds, prints the table and writes the files."""
    own, flags_of_ours = split(argv)
    arguments = _parse(own)
    _check_flags(flags_of_ours)
    peers, conditions = installed_peers(arguments.torch_python)
    warn_of_missing_kernels()
    ways: dict[str, Callable[[Case], float]] = {
        OURS: lambda case: our_rate(case, arguments.data_dir, flags_of_ours),
        **{name: peer.rate for name, peer in peers.items()},
    }
    conditions["data"] = _data_source(arguments.data_dir)
    conditions["flags"] = flags_of_ours
    arguments.out.mkdir(parents=True, exist_ok=True)
    rows, conditions = read_rows(arguments.out, conditions)
    for case, index in still_to_do(_cases(arguments), rows, arguments.rounds):
        for way, rate in ways.items():
            load = os.getloadavg()[0]
            rows.append(Row(index, *case[:3], way, rate(case), load))
            print(json.dumps(rows[-1]._asdict()), flush=True)
        write_report(arguments.out, rows, conditions)
    text = write_report(arguments.out, rows, conditions)
    Console().print(text, highlight=False, markup=False, soft_wrap=True)
    return 0


def _cases(arguments: argparse.Namespace) -> list[Case]:
    return [
        Case(
            name,
            arguments.batch_size or NETWORKS[name].batch_size,
            precision,
            arguments.steps or NETWORKS[name].steps,
        )
        for name in arguments.networks
        for precision in arguments.precisions
    ]


def still_to_do(cases: Sequence[Case], rows: Sequence[Row], rounds: int) -> list[tuple[Case, int]]:
    """Returns the (case, round) pairs to measure, in this order; `rows` are already measured."""
    done: Mapping[Any, int] = rounds_of(rows)
    return [
        (case, index)
        for index in range(1, rounds + 1)
        for case in cases
        if done.get(case[:3], 0) < index
    ]


def our_rate(case: Case, data_dir: str, more_flags: Sequence[str] = ()) -> float:
    """Measures the images/s of cifar10_main.py, its input pipeline included."""
    words = [
        *NETWORKS[case.network].flags,
        f"--train-batch-size={case.batch_size}",
        f"--precision={case.precision}",
        f"--data-dir={os.path.abspath(data_dir)}",
        *more_flags,
    ]
    log_steps = max(1, min(_MAX_LOG_STEPS, case.steps // _MIN_GAPS))
    lines = max(_MIN_GAPS, case.steps // log_steps) + 1
    run = Run(on_this_machine(0, 0), flags.parse(words), 0.0, log_steps, min_lines=lines)
    return round(jobs.measure(run).images_per_sec, 1)


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


def installed_peers(torch_python: Optional[str]) -> tuple[dict[str, Peer], dict[str, Any]]:
    """Finds the peers that this machine has.

    Args:
      torch_python: value of --torch-python; None: this Python.

    Returns:
      The peers by name; and the conditions of the measurement, `hardware` and `versions`.

    Raises:
      BenchmarkError: the Python that --torch-python names cannot run or has no torch.
    """
    conditions: dict[str, Any] = {"hardware": hardware(), "versions": versions()}
    peers = {
        KERAS: Peer(sys.executable, "benchmarks.peers.keras_fit"),
        MIRRORED: Peer(sys.executable, "benchmarks.peers.mirrored"),
    }
    python = torch_python or sys.executable
    try:
        command = [python, "-c", "import torch; print(torch.__version__)"]
        done = subprocess.run(command, check=False, capture_output=True, text=True)
        found = done.stdout.strip() if done.returncode == 0 else None
    except OSError as error:
        raise BenchmarkError(f"--torch-python {python}: {error.strerror}") from None
    if found:
        peers[TORCH] = Peer(python, "benchmarks.peers.torch_step")
        conditions["versions"]["torch"] = found
    elif torch_python:
        raise BenchmarkError(
            f"--torch-python must name a Python that has torch, got {python}; leave it out to "
            "compare without PyTorch"
        )
    else:
        print(f"{TORCH} is not installed here: left out; --torch-python names a Python with torch")
    return peers, conditions


def warn_of_missing_kernels() -> None:
    """Says so if our convolutions cannot be had: what is compared then is not what is meant."""
    reason = library.why_not(cpu_flags())
    if reason is not None:
        print(f"{OURS} has TensorFlow's convolutions here: ours cannot be had, {reason}")


def _check_flags(words: Sequence[str]) -> None:
    config = training_config(words)
    for name in _OF_CASES:
        if config.is_set(name):
            raise BenchmarkError(
                f"{flag_name(name)} must be the same in all ways, so it cannot be given after --; "
                "leave it out (--networks, --batch-size, --precisions and --data-dir choose)"
            )


def _data_source(data_dir: str) -> str:
    path = pathlib.Path(data_dir) / "manifest.json"
    try:
        return str(json.loads(path.read_text())["source"]["kind"])
    except OSError:
        raise BenchmarkError(
            f"--data-dir must hold records, and there is no {path}; python -m data_prep makes them"
        ) from None


def _parse(argv: Sequence[str]) -> argparse.Namespace:
    parser = new_parser("compare", __doc__)
    parser.add_argument("--data-dir", default="data")
    parser.add_argument("--networks", nargs="+", choices=list(NETWORKS), default=list(NETWORKS))
    parser.add_argument("--precisions", nargs="+", choices=PRECISIONS, default=PRECISIONS)
    parser.add_argument("--batch-size", type=at_least_one, help="default: each network's own")
    parser.add_argument(
        "--steps", type=at_least_one, help="timed in each run (default: each network's own)"
    )
    parser.add_argument("--rounds", type=at_least_one, default=5, help="(default 5)")
    parser.add_argument("--torch-python", metavar="PATH", help="a Python that has torch")
    parser.add_argument("--out", type=pathlib.Path, default="compared", metavar="DIR")
    return parser.parse_args(argv)
