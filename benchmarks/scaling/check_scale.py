"""Compares the model of `scale` with real runs over links of a given speed and delay.

    python -m benchmarks check-scale -- --num-layers=20 --train-batch-size=64

Each case is a real cluster whose processes run in network namespaces (testbeds/limited_links.py),
each trainer on one core. The constants are fitted over links without a limit. Each case is then run
and predicted. The prediction takes its computing time from as many processes as there are trainers,
each training alone at the same time: the mean of such runs just before and just after the case,
since other load changes a machine's speed, and two cores are not always twice as fast as one. Needs
root. If there are more trainers and servers than cores, they share cores, which the model ignores.
"""

import argparse
import concurrent.futures
import dataclasses
import itertools
import json
import multiprocessing
import os
import re
import statistics
import sys
from collections.abc import Sequence
from typing import NamedTuple

from rich.console import Console
from rich.table import Table

from benchmarks import arguments
from benchmarks.scaling import jobs
from benchmarks.scaling.scale import add_constants_arguments, constants_text, find_constants
from benchmarks.scaling.step_model import Link, Shape, images_per_sec
from cifar10.config import flags
from launch.cluster.host_list import code_folder
from launch.cluster.model import Cluster, Host, Ports
from testbeds.limited_links import Machine, Machines

_SHAPES = (Shape(1, 1), Shape(2, 1), Shape(2, 2), Shape(2, 1, sync=True), Shape(2, 2, sync=True))
_LINKS = ((125e6, 0.0), (12.5e6, 0.0), (125e6, 0.01))  # bytes a second, seconds one way


def main(argv: Sequence[str]) -> int:
    """Fits the model, then predicts and runs each case."""
    options = _parse(argv)
    trial = _Trial(options)
    console = Console(highlight=False)
    with Machines(machines_of(Shape(1, 2))) as machines:
        constants = find_constants(options, lambda ps: trial.run(Shape(1, ps), machines))
    console.print(constants_text(constants), soft_wrap=True)
    table = Table("link", "delay", "trainers", "ps", "updates", title="images/s")
    for name in ("predicted", "measured", "predicted / measured"):
        table.add_column(name, justify="right")
    trial.log_steps = jobs.log_steps_for(constants.compute_secs)
    before: dict[int, Reference] = {}
    for (bytes_per_sec, delay_secs), shape in itertools.product(options.links, options.shapes):
        first = before.get(shape.trainers) or trial.reference(shape.trainers)
        figures = trial.measure(shape, bytes_per_sec, delay_secs)
        before = {shape.trainers: trial.reference(shape.trainers)}
        compute, jitter = map(statistics.mean, zip(first, before[shape.trainers]))
        now = dataclasses.replace(constants, compute_secs=compute, jitter=jitter)
        predicted = images_per_sec(now, shape, Link(bytes_per_sec, 2 * delay_secs))
        cells = {
            "link": f"{bytes_per_sec * 8e-6:,.0f} Mbit/s",
            "delay": f"{1000 * delay_secs:g} ms",
            "trainers": str(shape.trainers),
            "ps": str(shape.ps),
            "updates": "synchronous" if shape.sync else "asynchronous",
            "predicted": f"{predicted:.0f}",
            "measured": f"{figures.images_per_sec:.0f}",
            "predicted / measured": f"{predicted / figures.images_per_sec:.2f}",
        }
        server_ms = 1000 * figures.server_cores * figures.step_secs / shape.trainers
        more = {
            "ms alone": 1000 * compute,
            "deviation %": 100 * jitter,
            "server CPU ms a step": server_ms,
        }
        shown = {name: f"{value:.1f}" for name, value in more.items()}
        print(json.dumps({**cells, **shown}), flush=True)
        table.add_row(*cells.values())
    console.print(table)
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

    def run(self, shape: Shape, machines: Machines, first: int = 0) -> jobs.Run:
        """Returns the run of a shape on existing machines, from number `first` on."""
        config = flags.parse([*self._words, *([] if shape.sync else ["--sync=false"])])
        cluster = cluster_of(shape, machines, first)
        return jobs.Run(
            cluster, config, self._seconds, self.log_steps, transport=machines.transport
        )

    def measure(self, shape: Shape, bytes_per_sec: float, delay_secs: float) -> jobs.Figures:
        """Makes the machines and runs the training on them."""
        with Machines(machines_of(shape), bytes_per_sec, delay_secs) as machines:
            return jobs.measure(self.run(shape, machines))

    def reference(self, count: int) -> Reference:
        """Measures `count` single processes that train at once, each on a trainer's core."""
        # Each in a process of its own, since a measured job ends by a signal to its process.
        context = multiprocessing.get_context("spawn")
        pool = concurrent.futures.ProcessPoolExecutor(count, context)
        with Machines(machines_of(Shape(count, 0))) as machines, pool:
            runs = [self.run(Shape(1, 0), machines, index) for index in range(count)]
            found = list(pool.map(jobs.measure, runs))
        return Reference(
            statistics.mean(one.step_secs for one in found),
            statistics.mean(one.jitter for one in found),
        )


def machines_of(shape: Shape) -> list[Machine]:
    """Returns the machines of a shape: trainers, each on one core, then servers.

    Servers get the cores that no trainer has, or all cores if there are none left.
    """
    cores = sorted(os.sched_getaffinity(0))
    left = cores[shape.trainers :] or cores
    trainers = [Machine(0, str(cores[i % len(cores)])) for i in range(shape.trainers)]
    return trainers + [Machine(1, ",".join(map(str, left)))] * shape.ps


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
    add_constants_arguments(parser)
    return arguments.parse(parser, argv)


def _link(text: str) -> tuple[float, float]:
    speed, plus, delay = text.partition("+")
    if plus and not delay.endswith("ms"):
        raise argparse.ArgumentTypeError(f"must be such as 1Gbit or 1Gbit+10ms, got {text!r}")
    secs = arguments.positive(delay[:-2]) / 1000 if plus else 0.0
    return arguments.bytes_per_sec(speed), secs


def _shape(text: str) -> Shape:
    match = re.fullmatch(r"([1-9][0-9]?)x([1-9][0-9]?)(sync)?", text)
    if not match:
        raise argparse.ArgumentTypeError(f"must be such as 2x1 or 2x1sync, got {text!r}")
    return Shape(int(match[1]), int(match[2]), bool(match[3]))
