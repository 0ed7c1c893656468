"""What launching costs: the same job by each way to run it, and the launcher's own share.

    python -m benchmarks launchers local.yaml ssh.yaml slurm.yaml --rounds 3 -- --train-epochs=10

Each cluster file (docs/launch.md) runs the program with the arguments after `--`, in turns; wipe
its output folder between the runs with `--wipe FOLDER`, or the second run finds the job finished.
`before` is from the start of `python -m launch up` to the first task's log, which is opened when
the task starts; `after` from the last line of any task to the end of the launcher, the tasks' own
exit included. Each run prints a JSON line, the end is a table of medians.
"""

import argparse
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from benchmarks.errors import BenchmarkError

ROOT = pathlib.Path(__file__).resolve().parents[1]
_POLL_SECS = 0.01


def main(argv: Sequence[str]) -> None:
    """Runs the rounds and prints a table.

    Raises:
      BenchmarkError: a run failed; says how it ended.
    """
    words = list(argv)
    split = words.index("--") if "--" in words else len(words)
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks launchers",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("cluster", type=pathlib.Path, nargs="+")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--wipe", type=pathlib.Path, nargs="*", default=[], metavar="FOLDER")
    options = parser.parse_args(words[:split])
    found: dict[str, list[dict[str, float]]] = {}
    for index in range(options.rounds):
        for file in options.cluster:
            for folder in options.wipe:
                shutil.rmtree(folder, ignore_errors=True)
            figures = run(file, words[split + 1 :])
            found.setdefault(file.stem, []).append(figures)
            load = os.getloadavg()[0]
            print(json.dumps({"round": index + 1, "cluster": file.stem, **figures, "load": load}))
    table = Table("cluster", "whole job, s", "before, s", "after, s", "n", title="Launching")
    for name, runs in found.items():
        medians = (
            statistics.median(run[key] for run in runs) for key in ("seconds", "before", "after")
        )
        table.add_row(name, *(f"{one:.2f}" for one in medians), str(len(runs)))
    Console().print(table)


def run(cluster: pathlib.Path, arguments: list[str]) -> dict[str, float]:
    """Runs one job to its end.

    Args:
      cluster: its file.
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
            + ["--cluster", str(cluster), "--", *arguments],
            cwd=ROOT,
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
            raise BenchmarkError(f"{cluster} ended with {process.returncode}: {last_line}")
        last = max(path.stat().st_mtime for path in pathlib.Path(state).glob("*/logs/*.log"))
    return {
        "seconds": round(ended - started, 2),
        "before": round(before, 2),
        "after": round(ended - last, 2),
    }
