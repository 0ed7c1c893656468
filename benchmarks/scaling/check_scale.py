"""Compares the model of `scale` with real runs over links of a given speed and delay.

    python -m benchmarks check-scale -- --num-layers=20 --train-batch-size=64
    python -m benchmarks check-scale --share 0.06 --shapes 8x2 16x1sync -- --num-layers=8

Each shape is a real cluster whose processes run in network namespaces (testbeds/limited_links.py),
each trainer on one core, or with `--share` on a part of one, for more trainers than cores. The
constants are fitted over links without a limit. Each shape is then run, over one link after the
other, and predicted. The prediction takes its computing time from as many processes as there are
trainers (with `--share` from two at most), each training alone at the same time: the mean of such
runs just before and just after the shape, since other load changes a machine's speed, and two cores
are not always twice as fast as one. Needs root. Without `--share`, if there are more trainers and
servers than cores, they share cores, which the model ignores.
"""

import argparse
import concurrent.futures
import dataclasses
import multiprocessing
import os
import re
import statistics
import sys
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple, Optional

from rich.console import Console

from benchmarks import arguments
from benchmarks.scaling import jobs
from benchmarks.scaling.check_report import Result, line_of, table_of
from benchmarks.scaling.measured_run import Figures, Run
from benchmarks.scaling.scale import add_constants_arguments, constants_text, find_constants
from benchmarks.scaling.step_model import Link, Shape
from cifar10.config import flags
from launch.cluster.host_list import code_folder
from launch.cluster.model import Cluster, Host, Ports
from testbeds.limited_links import Machine, Machines

_SHAPES = (Shape(1, 1), Shape(2, 1), Shape(2, 2), Shape(2, 1, sync=True), Shape(2, 2, sync=True))
_MOST_AT_ONCE = 2  # processes for the computing time of a share of a core


class Wire(NamedTuple):
    """A link to try: bytes a second, each way, and seconds one way."""

    bytes_per_sec: float
    delay_secs: float


_LINKS = (Wire(125e6, 0.0), Wire(12.5e6, 0.0), Wire(125e6, 0.01))


def main(argv: Sequence[str]) -> int:
    """Fits the model, then predicts and runs each case."""
    options = _parse(argv)
    trial = _Trial(options)
    console = Console(highlight=False)
    with Machines(machines_of(Shape(1, 2), options.share)) as machines:
        constants = find_constants(options, lambda ps: trial.run(Shape(1, ps), machines))
    console.print(constants_text(constants), soft_wrap=True)
    trial.log_steps = jobs.log_steps_for(constants.compute_secs)
    results: list[Result] = []
    before: dict[int, Reference] = {}
    for shape in options.shapes:
        count = min(shape.trainers, _MOST_AT_ONCE) if options.share else shape.trainers
        first = before.get(count) or trial.reference(count)
        measured = trial.measure(shape, options.links)
        before = {count: trial.reference(count)}
        compute, jitter = map(statistics.mean, zip(first, before[count]))
        now = dataclasses.replace(constants, compute_secs=compute, jitter=jitter)
        for (bytes_per_sec, delay_secs), figures in measured.items():
            results.append(Result(now, shape, Link(bytes_per_sec, 2 * delay_secs), figures))
            print(line_of(results[-1]), flush=True)
    console.print(table_of(results))
    return 0


class Reference(NamedTuple):
    """A step of processes that train alone at the same time: its seconds and relative deviation."""

    compute_secs: float
    jitter: float


class _Trial:
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
        with Machines(machines_of(Shape(count, 0), self._share)) as machines, pool:
            runs = [self.run(Shape(1, 0), machines, index) for index in range(count)]
            found = list(pool.map(jobs.measure, runs))
        return Reference(
            statistics.mean(one.step_secs for one in found),
            statistics.mean(one.jitter for one in found),
        )


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


def _parse(argv: Sequence[str]) -> argparse.Namespace:
    parser = arguments.new_parser("check-scale", __doc__)
    parser.add_argument(
        "--links",
        nargs="+",
        type=_link,
        default=list(_LINKS),
        metavar="LINK",
        help="such as 1Gbit or 1Gbit+10ms, the delay one way (default: 1Gbit 100Mbit 1Gbit+10ms)",
    )
    parser.add_argument(
        "--shapes",
        nargs="+",
        type=_shape,
        default=list(_SHAPES),
        metavar="SHAPE",
        help="trainers x parameter servers, such as 2x1 or 2x1sync",
    )
    parser.add_argument(
        "--share",
        type=_share,
        metavar="PART",
        help="part of a core that each trainer gets, such as 0.06 (default: a core each)",
    )
    add_constants_arguments(parser)
    return arguments.parse(parser, argv)


def _link(text: str) -> Wire:
    speed, plus, delay = text.partition("+")
    if plus and not delay.endswith("ms"):
        raise argparse.ArgumentTypeError(f"must be such as 1Gbit or 1Gbit+10ms, got {text!r}")
    secs = arguments.positive(delay[:-2]) / 1000 if plus else 0.0
    return Wire(arguments.bytes_per_sec(speed), secs)


def _shape(text: str) -> Shape:
    match = re.fullmatch(r"([1-9][0-9]?)x([1-9][0-9]?)(sync)?", text)
    if not match:
        raise argparse.ArgumentTypeError(f"must be such as 2x1 or 2x1sync, got {text!r}")
    return Shape(int(match[1]), int(match[2]), bool(match[3]))


def _share(text: str) -> float:
    share = arguments.positive(text)
    if not 0.001 <= share <= 1:
        raise argparse.ArgumentTypeError(f"must be from 0.001 to 1, got {text!r}")
    return share
