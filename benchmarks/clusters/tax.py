"""Measures what a parameter server costs: the wall and CPU time of a step, beside those alone.

A step with a ps can take longer for two reasons: the tasks compute more, or they wait for each
other. So the CPU time of each task stands beside the wall time. Pinned, the ps has one core and
the trainer another, with or without the ps: then they do not compete, and what the step takes
longer is waiting and the trainer's part of the transfers.
"""

import contextlib
import json
import os
import pathlib
import statistics
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Optional

from rich.table import Table

from benchmarks.errors import BenchmarkError
from launch.record.progress import read_progress
from testbeds.processes import ClusterOfProcesses, cluster

JOB_SECS = 3600.0  # time limit of a whole job
_LOOK_SECS = 0.02
_MASTER, _PS = "master/0", "ps/0"


class StepCost(NamedTuple):
    """What a step of a job costs.

    Attributes:
      wall_ms: milliseconds from step to step.
      cpu_ms: CPU milliseconds of each task, all threads together, by its label.
    """

    wall_ms: float
    cpu_ms: dict[str, float]


class CpuMark(NamedTuple):
    """The CPU seconds that each task, by its label, had used at a global step."""

    step: int
    cpu_secs: dict[str, float]


@contextlib.contextmanager
def cluster_job(
    flags: Sequence[str], **shape: Any
) -> Iterator[tuple[ClusterOfProcesses, pathlib.Path]]:
    """Yields a cluster that has not started yet and its output folder; removes both at the end.

    Args:
      flags: flags of every task, without --output-dir.
      shape: keyword arguments of ClusterOfProcesses; by default a master, a worker and a ps.
    """
    with tempfile.TemporaryDirectory() as folder:
        output = pathlib.Path(folder) / "output"
        with cluster(pathlib.Path(folder), *flags, f"--output-dir={output}", **shape) as tasks:
            yield tasks, output


def measure_tax(
    flags: Sequence[str], networks: Sequence[tuple[int, int]], rounds: int, pinned: bool = False
) -> Table:
    """Measures a step with a ps and without, in turns, for each network.

    Args:
      flags: flags of cifar10_main.py, without --num-layers and --train-batch-size.
      networks: (number of layers, batch size) of each network.
      rounds: pairs of runs for each network.
      pinned: whether the trainer has one core and the ps another; else they share all cores.

    Raises:
      BenchmarkError: it is to be pinned, and this process has only one core.
    """
    cores = _one_core_each() if pinned else None
    how = "one core each" if pinned else "shared cores"
    table = Table(
        *("layers", "batch", "alone ms", "with a ps ms", "ratio", "ratios"),
        *("CPU ms alone", "CPU ms master", "CPU ms ps"),
        title=f"1 ps and 1 master against a single process, {how}: a step",
    )
    for layers, size in networks:
        more = [*flags, f"--num-layers={layers}", f"--train-batch-size={size}"]
        alone, with_ps = [], []
        for index in range(rounds):
            load = os.getloadavg()[0]
            alone.append(measure_step(more, num_ps=0, cores=cores))
            with_ps.append(measure_step(more, num_ps=1, cores=cores))
            line = {
                "round": index + 1,
                "num_layers": layers,
                "batch_size": size,
                "alone_ms": round(alone[-1].wall_ms, 2),
                "with_ps_ms": round(with_ps[-1].wall_ms, 2),
                "ratio": round(with_ps[-1].wall_ms / alone[-1].wall_ms, 3),
                "alone_cpu_ms": round(alone[-1].cpu_ms[_MASTER], 2),
                "master_cpu_ms": round(with_ps[-1].cpu_ms[_MASTER], 2),
                "ps_cpu_ms": round(with_ps[-1].cpu_ms[_PS], 2),
                "load": load,
            }
            print(json.dumps(line), flush=True)
        ratios = [one.wall_ms / other.wall_ms for one, other in zip(with_ps, alone)]
        table.add_row(
            str(layers),
            str(size),
            f"{statistics.median(one.wall_ms for one in alone):.1f}",
            f"{statistics.median(one.wall_ms for one in with_ps):.1f}",
            f"{statistics.median(ratios):.3f}",
            ", ".join(f"{ratio:.3f}" for ratio in ratios),
            f"{statistics.median(one.cpu_ms[_MASTER] for one in alone):.1f}",
            f"{statistics.median(one.cpu_ms[_MASTER] for one in with_ps):.1f}",
            f"{statistics.median(one.cpu_ms[_PS] for one in with_ps):.1f}",
        )
    return table


def measure_step(
    flags: Sequence[str], num_ps: int, cores: Optional[Mapping[str, int]] = None
) -> StepCost:
    """Trains, and returns the cost of a step.

    Its wall time is the median over the rows of history.json. The first row, which holds the
    warm-up, and the last are left out. Validation does not count, since the history's clock stops
    for it. The CPU time is that between the first progress line and the last one before the end.

    Args:
      flags: flags of cifar10_main.py, without --output-dir.
      num_ps: 1: a ps and a master train; 0: a master alone, without a server.
      cores: the core of each task by its label; None: all of them.
    """
    with cluster_job(flags, num_ps=num_ps, num_workers=0) as (tasks, output):
        tasks.start()
        for label, process in tasks.processes.items():
            if cores:
                os.sched_setaffinity(process.pid, {cores[label]})
        marks = watch(tasks)
        tasks.wait(JOB_SECS)
        rows = json.loads((output / "result.json").read_text())["history"]["train"]
    pairs = list(zip(rows, rows[1:]))[:-1]
    wall_ms = 1000 * statistics.median(
        (row["seconds"] - before["seconds"]) / (row["step"] - before["step"])
        for before, row in pairs
    )
    return StepCost(wall_ms, cpu_ms_between(marks[0], marks[-1]))


def watch(tasks: ClusterOfProcesses) -> list[CpuMark]:
    """Watches a started job until a task ends; `ClusterOfProcesses.wait` tells whether it failed.

    Returns:
      A mark for each progress line of the master except the last, taken as soon as it came.

    Raises:
      TestbedError: a task failed before there were two marks.
      BenchmarkError: the master ended before there were two marks.
    """
    marks: list[CpuMark] = []
    while all(one.poll() is None for one in tasks.processes.values()):
        found = [read_progress(line) for line in tasks.output(_MASTER).splitlines()]
        lines = [one for one in found if one and one.step != one.total]
        if lines and (not marks or lines[-1].step > marks[-1].step):
            spent = {label: cpu_secs(one.pid) for label, one in tasks.processes.items()}
            marks.append(CpuMark(lines[-1].step, spent))
        time.sleep(_LOOK_SECS)
    if len(marks) < 2:
        running = [label for label, one in tasks.processes.items() if one.poll() is None]
        tasks.wait(JOB_SECS, but=running)  # Says why a task has failed.
        raise BenchmarkError("a run printed fewer than three progress lines; use more --steps")
    return marks


def cpu_ms_between(first: CpuMark, last: CpuMark) -> dict[str, float]:
    """Returns each task's CPU milliseconds a step between two marks, by its label."""
    steps = last.step - first.step
    return {
        label: 1000 * (secs - first.cpu_secs[label]) / steps
        for label, secs in last.cpu_secs.items()
    }


def cpu_secs(pid: int) -> float:
    """Returns the CPU seconds of a process, all threads together, also those that have ended."""
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")


def _one_core_each() -> dict[str, int]:
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        raise BenchmarkError("--pinned needs two cores, and this process may use one; leave it out")
    return {_MASTER: cores[0], _PS: cores[1]}
