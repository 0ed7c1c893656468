"""Training speed beside other ways to train the same network: medians, spread and ratios.

    python -m benchmarks compare --data-dir data --torch-python other/bin/python --out compared

In each round, every network and precision is trained by every way, one right after the other, so
that a machine that others use too slows all of them alike; ratios are taken round by round. Ours is
the whole of `train_and_evaluate` with its input pipeline (benchmarks/jobs.py); each peer is a
program of benchmarks/peers/, which says what it leaves out. All of them time --steps steps after a
warm-up. What is not installed is left out, and said so. OUT gets compare.json, compare.md and
compare.png, anew after each round.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, Optional

from rich.console import Console

from benchmarks import jobs
from benchmarks.compare_report import OURS, Row, write_report
from benchmarks.errors import BenchmarkError
from benchmarks.networks import NETWORKS, PRECISIONS
from cifar10 import flags
from cifar10.environment import hardware, versions
from launch.layouts import ROOT, on_this_machine

BARE, KERAS, MIRRORED, TORCH = "bare step", "Keras fit", "MirroredStrategy", "PyTorch"
_LOG_STEPS = 5


class Case(NamedTuple):
    """What is trained."""

    network: str
    precision: str
    batch_size: int
    steps: int


class Peer(NamedTuple):
    """A program of another way, in its own Python."""

    python: str
    module: str

    def rate(self, case: Case) -> float:
        """images/s that it reports; BenchmarkError if it fails."""
        words = ["--network", case.network, "--precision", case.precision]
        words += ["--batch-size", str(case.batch_size), "--steps", str(case.steps)]
        return last_rate([self.python, "-m", self.module, *words])


def main(argv: Sequence[str]) -> int:
    """Runs the rounds, prints the table and writes the files."""
    arguments = _parse(argv)
    peers, conditions = installed_peers(arguments.torch_python)
    ways: dict[str, Callable[[Case], float]] = {
        OURS: lambda case: our_rate(case, arguments.data_dir),
        **{name: peer.rate for name, peer in peers.items()},
    }
    if arguments.bare_step:
        ways[BARE] = _bare_rate
    conditions |= {"data": _data_source(arguments.data_dir), "batch_size": arguments.batch_size}
    cases = [
        Case(network, precision, arguments.batch_size, arguments.steps)
        for network in arguments.networks
        for precision in arguments.precisions
    ]
    rows: list[Row] = []
    arguments.out.mkdir(parents=True, exist_ok=True)
    for index in range(arguments.rounds):
        for row in one_round(cases, ways, index + 1):
            print(json.dumps(row._asdict()), flush=True)
            rows.append(row)
        text = write_report(arguments.out, rows, conditions)
    Console().print(text, highlight=False, markup=False, soft_wrap=True)
    return 0


def one_round(
    cases: Sequence[Case], ways: dict[str, Callable[[Case], float]], index: int
) -> Iterator[Row]:
    """Every case by every way, those of a case one right after the other."""
    for case in cases:
        for way, rate in ways.items():
            load = os.getloadavg()[0]
            yield Row(index, case.network, case.precision, way, rate(case), load)


def our_rate(case: Case, data_dir: str) -> float:
    """images/s of the whole of cifar10_main.py."""
    words = [*_words(case), f"--data-dir={os.path.abspath(data_dir)}"]
    lines = max(2, case.steps // _LOG_STEPS) + 1
    run = jobs.Run(on_this_machine(0, 0), flags.parse(words), 0.0, _LOG_STEPS, min_lines=lines)
    return round(jobs.measure(run).images_per_sec, 1)


def _bare_rate(case: Case) -> float:
    return last_rate([sys.executable, "-m", "benchmarks", "bare-step", *_words(case)])


def _words(case: Case) -> list[str]:
    words = [f"--train-batch-size={case.batch_size}", f"--precision={case.precision}"]
    return [*NETWORKS[case.network].flags, *words]


def last_rate(command: Sequence[str]) -> float:
    """Runs a command whose last line is JSON with images_per_sec.

    Raises:
      BenchmarkError: it failed.
    """
    done = subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True)
    if done.returncode:
        why = done.stderr.strip().splitlines()[-1:] or [f"exit code {done.returncode}"]
        raise BenchmarkError(f"{' '.join(command)} failed: {why[0]}")
    return float(json.loads(done.stdout.splitlines()[-1])["images_per_sec"])


def installed_peers(torch_python: Optional[str]) -> tuple[dict[str, Peer], dict[str, Any]]:
    """The peers that are here, and what was measured on: hardware, versions.

    Raises:
      BenchmarkError: the Python that --torch-python names has no torch.
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


def _data_source(data_dir: str) -> str:
    path = pathlib.Path(data_dir) / "manifest.json"
    try:
        return str(json.loads(path.read_text())["source"]["kind"])
    except OSError:
        raise BenchmarkError(
            f"--data-dir must hold records, and there is no {path}; python -m data_prep makes them"
        ) from None


def _parse(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks compare",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--data-dir", default="data")
    parser.add_argument("--networks", nargs="+", choices=list(NETWORKS), default=list(NETWORKS))
    parser.add_argument("--precisions", nargs="+", choices=PRECISIONS, default=PRECISIONS)
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--steps", type=int, default=30, help="timed in each run (default 30)")
    parser.add_argument("--rounds", type=int, default=5, help="(default 5)")
    parser.add_argument("--torch-python", metavar="PATH", help="a Python that has torch")
    parser.add_argument(
        "--bare-step", action="store_true", help="our training step without anything around it, too"
    )
    parser.add_argument("--out", type=pathlib.Path, default="compared", metavar="DIR")
    arguments = parser.parse_args(argv)
    for name, least in (("batch_size", 1), ("steps", 2 * _LOG_STEPS), ("rounds", 1)):
        if getattr(arguments, name) < least:
            flag = name.replace("_", "-")
            raise BenchmarkError(
                f"--{flag} must be at least {least}, got {getattr(arguments, name)}"
            )
    return arguments
