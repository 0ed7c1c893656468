"""What launching costs: the same job by each way to run it, and the launcher's own share.

    python -m benchmarks launchers local ssh slurm docker.yaml --wipe output -- --train-epochs=10

Each way runs the program as a master, a worker and a ps with the arguments after `--`, in turns;
wipe its output folder between the runs with `--wipe FOLDER`, or the second run finds the job
finished. `ssh` and `slurm` start two nodes on this machine (testbeds/; Debian, root), and a cluster
file (docs/launch.md) is any other cluster.
`before` is from the start of `python -m launch up` to the first task's log, which is opened when
the task starts; `after` from the last line of any task to the end of the launcher, the tasks' own
exit included. Each run prints a JSON line, the end is a table of medians.
"""

import contextlib
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import yaml
from rich.console import Console
from rich.table import Table

from benchmarks.arguments import new_parser, split
from benchmarks.errors import BenchmarkError
from launch.cluster.host_list import ROOT
from testbeds.nodes import Nodes
from testbeds.slurm import Slurm

_TESTBEDS = ("local", "ssh", "slurm")
_POLL_SECS = 0.01


def main(argv: Sequence[str]) -> None:
    """Runs the rounds and prints a table.

    Raises:
      BenchmarkError: a run failed; says how it ended.
    """
    words, training = split(argv)
    parser = new_parser("launchers", __doc__)
    parser.add_argument("way", nargs="+", help=f"{', '.join(_TESTBEDS)} or a cluster file")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--wipe", type=pathlib.Path, nargs="*", default=[], metavar="FOLDER")
    options = parser.parse_args(words)
    found: dict[str, list[dict[str, float]]] = {}
    with contextlib.ExitStack() as stack:
        clusters = [stack.enter_context(cluster_of(way)) for way in options.way]
        for index in range(options.rounds):
            for cluster in clusters:
                for folder in options.wipe:
                    shutil.rmtree(folder, ignore_errors=True)
                figures = run(cluster, training)
                name, load = cluster.file.stem, os.getloadavg()[0]
                found.setdefault(name, []).append(figures)
                line = {"round": index + 1, "way": name, **figures, "load": load}
                print(json.dumps(line), flush=True)
    table = Table("way", "whole job, s", "before, s", "after, s", "n", title="Launching")
    for name, runs in found.items():
        medians = (
            statistics.median(run[key] for run in runs) for key in ("seconds", "before", "after")
        )
        table.add_row(name, *(f"{one:.2f}" for one in medians), str(len(runs)))
    Console().print(table)


class ClusterFile(NamedTuple):
    """A cluster file, and what the launcher's environment must hold for it."""

    file: pathlib.Path
    env: Mapping[str, str]


@contextlib.contextmanager
def cluster_of(way: str) -> Iterator[ClusterFile]:
    """The cluster file of a way; a testbed is there until the context ends.

    Raises:
      TestbedError: this machine cannot have that testbed.
    """
    if way not in _TESTBEDS:
        yield ClusterFile(pathlib.Path(way), {})
        return
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        description: dict[str, Any] = {
            "backend": way,
            "workdir": str(ROOT),
            "python": sys.executable,
        }
        env: Mapping[str, str] = {}
        if way == "local":
            roles = {"master": 1, "worker": 1, "ps": 1}
            description["hosts"] = [{"name": "localhost", "roles": roles}]
        elif way == "ssh":
            nodes = stack.enter_context(Nodes(pathlib.Path(folder) / "ssh", count=2))
            env = nodes.env
            description["hosts"] = [
                {"name": name, "address": nodes.address(name), "roles": roles}
                for name, roles in zip(nodes.names, ({"master": 1, "ps": 1}, {"worker": 1}))
            ]
        else:
            env = stack.enter_context(Slurm(count=2)).env
            description.update(tasks={"master": 1, "worker": 1, "ps": 1}, ports="free")
        file = pathlib.Path(folder) / f"{way}.yaml"
        file.write_text(yaml.safe_dump(description), encoding="utf-8")
        yield ClusterFile(file, env)


def run(cluster: ClusterFile, arguments: list[str]) -> dict[str, float]:
    """Runs one job to its end.

    Args:
      cluster: on what.
      arguments: the program's.

    Returns:
      Seconds of all of it, before its first task and after its last line.

    Raises:
      BenchmarkError: it failed; says how it ended.
    """
    with tempfile.TemporaryDirectory() as state:
        started, before = time.time(), 0.0
        process = subprocess.Popen(
            [sys.executable, "-m", "launch", "up", "--state-dir", state]
            + ["--cluster", str(cluster.file), "--", *arguments],
            cwd=ROOT,
            env={**os.environ, **cluster.env},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        while not before and process.poll() is None:
            if any(pathlib.Path(state).glob("*/logs/*.log")):
                before = time.time() - started
            time.sleep(_POLL_SECS)
        output, _ = process.communicate()
        ended = time.time()
        if process.returncode:
            last_line = output.rstrip().rpartition("\n")[2]
            raise BenchmarkError(f"{cluster.file} ended with {process.returncode}: {last_line}")
        last = max(path.stat().st_mtime for path in pathlib.Path(state).glob("*/logs/*.log"))
    return {
        "seconds": round(ended - started, 2),
        "before": round(before, 2),
        "after": round(ended - last, 2),
    }
