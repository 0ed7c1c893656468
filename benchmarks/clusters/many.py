"""Measures how large jobs start and end, and what their parameter servers take.

    python -m benchmarks many --trainers 4 8 16 --ps 1 2 4 -- --num-layers=8 --train-batch-size=16

The launcher starts each job, all of it on this machine. Training is synchronous, so the first step
waits for the last trainer. Each job prints a line of JSON: seconds from the start of the launcher
until each trainer has taken a step, and from the last step to the launcher's exit (the master
validates and evaluates meanwhile); and of the parameter servers, the highest memory and number of
open descriptors. A table comes last.
"""

import contextlib
import itertools
import json
import math
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from typing import NamedTuple, Optional

from rich.console import Console
from rich.table import Table

from benchmarks import arguments
from benchmarks.scaling.jobs import words_of
from benchmarks.table_text import machine_text
from cifar10.run.environment import hardware, versions
from launch.record.progress import read_progress
from testbeds.process_list import all_commands, environment_of
from testbeds.processes import ROOT, environment

_LINE = re.compile(r"\[((?:master|worker|ps)/\d+) \S+\] (.*)")
_OURS = {"data_dir", "output_dir", "train_steps", "checkpoint_steps", "log_steps"}


class Use(NamedTuple):
    """What a process takes: megabytes of memory, at most so far, and descriptors that are open."""

    memory_mb: float
    peak_mb: float
    descriptors: int


class Figures(NamedTuple):
    """The figures of a job.

    Attributes:
      start_secs: seconds from the launcher's start until all trainers have taken a step; None: they
        never had.
      end_secs: seconds from the last step to the launcher's exit; None: there was no step.
      memory_mb: the highest memory of a parameter server at a step, in MB (resident).
      peak_mb: the highest memory of a parameter server since its start, in MB.
      descriptors: the highest number of descriptors that a parameter server has open.
      exit_code: that of the launcher.
    """

    start_secs: Optional[float]
    end_secs: Optional[float]
    memory_mb: float
    peak_mb: float
    descriptors: int
    exit_code: int


def main(argv: Sequence[str]) -> int:
    """Runs the jobs and prints a table; the exit code is 1 if a job failed."""
    parser = arguments.new_parser("many", __doc__)
    whole = arguments.at_least_one
    parser.add_argument("--trainers", nargs="+", type=whole, default=[4, 8, 16])
    parser.add_argument("--ps", nargs="+", type=whole, default=[1, 2, 4])
    parser.add_argument("--steps", type=whole, default=20, help="(default 20)")
    options = arguments.parse(parser, argv)
    flags = [*words_of(options.config, _OURS), arguments.data_flag(options.config)]
    flags += [f"--train-steps={options.steps}", f"--checkpoint-steps={options.steps}"]
    print(machine_text(hardware(), versions()), flush=True)
    table = Table("trainers", "ps", title="jobs of many trainers")
    for name in ("start, s", "end, s", "MB of a ps", "at most", "descriptors", "exit code"):
        table.add_column(name, justify="right")
    failed = False
    for trainers, ps in itertools.product(options.trainers, options.ps):
        figures = measure(trainers, ps, flags)
        failed = failed or figures.exit_code != 0
        print(json.dumps({"trainers": trainers, "ps": ps, **figures._asdict()}), flush=True)
        times = ["-" if one is None else f"{one:.1f}" for one in figures[:2]]
        rest = (figures.memory_mb, figures.peak_mb, figures.descriptors, figures.exit_code)
        table.add_row(str(trainers), str(ps), *times, *map(str, rest))
    Console().print(table)
    return int(failed)


def measure(trainers: int, ps: int, flags: Sequence[str]) -> Figures:
    """Runs a job through the launcher and measures it.

    Args:
      trainers: number of trainers, the master among them.
      ps: number of parameter servers.
      flags: training flags, without --output-dir.
    """
    with tempfile.TemporaryDirectory() as folder:
        output = f"--output-dir={folder}/output"
        where = ["--workers", str(trainers - 1), "--ps", str(ps), f"--state-dir={folder}/runs"]
        words = [sys.executable, "-m", "launch", "up", "--on", "local", "--lines", *where, "--"]
        begin = time.monotonic()
        launcher = subprocess.Popen(
            [*words, *flags, output, "--log-steps=1"],
            cwd=ROOT,
            env=environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert launcher.stdout is not None
        with launcher:
            try:
                watch = Watch(trainers)
                for line in launcher.stdout:
                    if watch.take(line, time.monotonic()):
                        watch.uses += servers_use(output)
            except BaseException:
                launcher.terminate()
                raise
        end = time.monotonic()
    return Figures(
        start_secs=between(begin, watch.all_stepped),
        end_secs=between(watch.last_step, end),
        memory_mb=round(max((use.memory_mb for use in watch.uses), default=0.0)),
        peak_mb=round(max((use.peak_mb for use in watch.uses), default=0.0)),
        descriptors=max((use.descriptors for use in watch.uses), default=0),
        exit_code=launcher.returncode,
    )


def between(begin: float, end: float) -> Optional[float]:
    """Returns the seconds from one time to another, rounded; None if one of them never came."""
    return round(end - begin, 1) if math.isfinite(end - begin) else None


class Watch:
    """Reads what the launcher prints of a job.

    Args:
      trainers: number of trainers of the job.

    Attributes:
      all_stepped: time at which the last trainer printed its first step; infinite until then.
      last_step: time of the last progress line with a new step; infinite until then.
      uses: what parameter servers were seen to take.
    """

    def __init__(self, trainers: int) -> None:
        self.all_stepped = float("inf")
        self.last_step = float("inf")
        self.uses: list[Use] = []
        self._trainers, self._step = trainers, -1
        self._stepped: set[str] = set()

    def take(self, line: str, secs: float) -> bool:
        """Takes a line that came at `secs`; returns whether it is of all trainers' new step."""
        found = _LINE.match(line)
        progress = read_progress(found[2]) if found else None
        if not found or progress is None:
            return False
        self._stepped.add(found[1])
        is_new = progress.step > self._step
        if is_new:
            self._step, self.last_step = progress.step, secs
        if len(self._stepped) < self._trainers:
            return False
        self.all_stepped = min(self.all_stepped, secs)
        return is_new


def servers_use(mark: str) -> list[Use]:
    """Returns what each parameter server takes whose command line contains `mark`."""
    return list(_uses(pid for pid, command in all_commands().items() if mark in command))


def _uses(pids: Iterable[int]) -> Iterable[Use]:
    for pid in pids:
        config = [one for one in environment_of(pid) if one.startswith("TF_CONFIG=")]
        if config and json.loads(config[0].partition("=")[2])["task"]["type"] == "ps":
            with contextlib.suppress(OSError):  # The process has ended meanwhile.
                status = pathlib.Path(f"/proc/{pid}/status").read_text()
                kib = dict(re.findall(r"(Vm\w+):\s+(\d+) kB", status))
                if kib:  # none of one that ends
                    sizes = [1.024e-3 * int(kib[name]) for name in ("VmRSS", "VmHWM")]
                    yield Use(sizes[0], sizes[1], len(os.listdir(f"/proc/{pid}/fd")))
