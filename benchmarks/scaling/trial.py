"""Runs the same training on clusters of different shapes, over different links."""

import argparse
import concurrent.futures
import dataclasses
import multiprocessing
import os
import statistics
import sys
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple, Optional

from benchmarks import arguments
from benchmarks.scaling import jobs
from benchmarks.scaling.measured_run import Figures, Run
from benchmarks.scaling.step_model import Shape
from cifar10.config import flags
from launch.cluster.host_list import code_folder
from launch.cluster.model import Cluster, Host, Ports
from testbeds.limited_links import Machine, Machines


class Wire(NamedTuple):
    """A link to try: bytes a second, each way, and seconds one way."""

    bytes_per_sec: float
    delay_secs: float


class Reference(NamedTuple):
    """A step of processes that train alone at the same time: its seconds and relative deviation."""

    compute_secs: float
    jitter: float


class Trial:
    """Runs the same training on clusters of different shapes.

    Args:
      options: the parsed command line.

    Attributes:
      log_steps: steps of a trainer between two of its progress lines.
    """

    def __init__(self, options: argparse.Namespace) -> None:
        config = options.config
        self.log_steps = 1
        self._words = [*jobs.words_of(config, {"data_dir"}), arguments.data_flag(config)]
        self._seconds = options.seconds
        self._share = options.share

    def run(self, shape: Shape, machines: Machines, first: int = 0) -> Run:
        """Returns the next run on existing machines, of a shape from number `first` on."""
        machines.lift_shares()  # until trainers take steps: a start takes seconds of a whole core
        config = flags.parse([*self._words, *([] if shape.sync else ["--sync=false"])])
        return Run(
            cluster_of(shape, machines, first),
            config,
            self._seconds,
            self.log_steps,
            transport=machines.transport,
            stepping=machines.hold_to_share,
        )

    def measure(self, shape: Shape, links: Sequence[Wire]) -> dict[Wire, Figures]:
        """Measures a shape over each link; links of the same delay in one job, in turn."""
        found: dict[Wire, Figures] = {}
        for delay_secs in dict.fromkeys(link.delay_secs for link in links):
            alike = [link for link in links if link.delay_secs == delay_secs]
            first = alike[0].bytes_per_sec
            with Machines(machines_of(shape, self._share), first, delay_secs) as machines:
                speeds = [partial(machines.set_speed, link.bytes_per_sec) for link in alike]
                run = dataclasses.replace(self.run(shape, machines), conditions=speeds)
                found.update(zip(alike, jobs.measure_each(run)))
        return found

    def reference(self, count: int) -> Reference:
        """Measures `count` single processes that train at once, each on a trainer's core."""
        # Each in a process of its own, since a measured job ends by a signal to its process.
        context = multiprocessing.get_context("spawn")
        pool = concurrent.futures.ProcessPoolExecutor(count, context)
        alone = machines_of(Shape(count, 0), self._share)
        with Machines(alone) as machines, tempfile.TemporaryDirectory() as folder, pool:
            together = partial(_are_together, Path(folder), count)
            runs = [self.run(Shape(1, 0), machines, index) for index in range(count)]
            runs = [dataclasses.replace(run, may_begin=together) for run in runs]
            found = list(pool.map(jobs.measure, runs))
        return Reference(
            statistics.mean(one.step_secs for one in found),
            statistics.mean(one.jitter for one in found),
        )


def _are_together(folder: Path, count: int) -> bool:
    """Notes in a folder that this process is ready; returns whether `count` processes are."""
    (folder / str(os.getpid())).touch()
    return len(os.listdir(folder)) >= count


def machines_of(shape: Shape, share: Optional[float] = None) -> list[Machine]:
    """Returns the machines of a shape: trainers, each on one core, then servers.

    Servers get the cores that no trainer has, or all cores if there are none left. If trainers have
    only a share of a core, servers get all cores, and before trainers.
    """
    cores = sorted(os.sched_getaffinity(0))
    left = cores if share else cores[shape.trainers :] or cores
    trainers = [Machine(0, str(cores[i % len(cores)]), share) for i in range(shape.trainers)]
    server = Machine(1, ",".join(map(str, left)), is_preferred=share is not None)
    return trainers + [server] * shape.ps


def cluster_of(shape: Shape, machines: Machines, first: int = 0) -> Cluster:
    """Returns the launcher's cluster of that shape, on the machines from number `first` on."""
    roles = ["master", *["worker"] * (shape.trainers - 1), *["ps"] * shape.ps]
    hosts = tuple(
        Host(
            name=machines.name(index),
            address=machines.address(index),
            roles=((role, 1),),
            workdir=code_folder(),
            python=sys.executable,
            agent_python=sys.executable,
        )
        for index, role in enumerate(roles, first)
    )
    return Cluster(hosts=hosts, backend="local", ports=Ports(), source="namespaces")
