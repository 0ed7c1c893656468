"""The model of `scale` against real runs over links of a given speed and delay.

    python -m benchmarks check-scale -- --num-layers=20 --train-batch-size=64

Trainers and parameter servers are processes in network namespaces (benchmarks/namespaces.py), a
trainer on one core, real clusters otherwise. The constants are fitted over links without a limit;
then each case is predicted, and run. Needs root. Where trainers and servers are more than cores,
they take each other's time, which the model knows nothing of.
"""

import argparse
import itertools
import json
import os
import re
import sys
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from benchmarks import arguments, jobs
from benchmarks.namespaces import Machine, Machines
from benchmarks.scale import constants_text, measure_constants
from benchmarks.step_model import Link, Shape, images_per_sec
from cifar10 import flags
from launch.description import Cluster, Host, Ports
from launch.layouts import code_folder

_SHAPES = (Shape(1, 1), Shape(2, 1), Shape(2, 2), Shape(2, 1, sync=True), Shape(2, 2, sync=True))
_LINKS = ((125e6, 0.0), (12.5e6, 0.0), (125e6, 0.01))  # bytes a second, seconds one way


def main(argv: Sequence[str]) -> int:
    """Fits, predicts, runs."""
    options = _parse(argv)
    config = options.config
    words = [*jobs.words_of(config, {"data_dir"}), arguments.data_flag(config)]
    console = Console(highlight=False)

    def run(shape: Shape, machines: Machines) -> jobs.Run:
        modes = ["--sync"] if shape.sync else []
        trained = flags.parse([*words, *modes])
        cluster = cluster_of(shape, machines)
        return jobs.Run(cluster, trained, options.seconds, transport=machines.transport)

    with Machines(machines_of(Shape(1, 2))) as machines:
        constants = measure_constants(lambda ps: run(Shape(1, ps), machines))
    console.print(constants_text(constants))
    table = Table("link", "delay", "trainers", "ps", "updates", title="images/s")
    for name in ("predicted", "measured", "predicted / measured"):
        table.add_column(name, justify="right")
    for (bytes_per_sec, delay_secs), shape in itertools.product(options.links, options.shapes):
        link = Link(bytes_per_sec, 2 * delay_secs)
        predicted = images_per_sec(constants, shape, link)
        with Machines(machines_of(shape), bytes_per_sec, delay_secs) as machines:
            measured = jobs.measure(run(shape, machines)).images_per_sec
        cells = {
            "link": f"{bytes_per_sec * 8e-6:,.0f} Mbit/s",
            "delay": f"{1000 * delay_secs:g} ms",
            "trainers": str(shape.trainers),
            "ps": str(shape.ps),
            "updates": "synchronous" if shape.sync else "asynchronous",
            "predicted": f"{predicted:.0f}",
            "measured": f"{measured:.0f}",
            "predicted / measured": f"{predicted / measured:.2f}",
        }
        print(json.dumps(cells), flush=True)
        table.add_row(*cells.values())
    console.print(table)
    return 0


def machines_of(shape: Shape) -> list[Machine]:
    """Trainers, a core each in turn, then servers, on the cores that are left, or on all."""
    cores = sorted(os.sched_getaffinity(0))
    left = cores[shape.trainers :] or cores
    trainers = [Machine(0, str(cores[i % len(cores)])) for i in range(shape.trainers)]
    return trainers + [Machine(1, ",".join(map(str, left)))] * shape.ps


def cluster_of(shape: Shape, machines: Machines) -> Cluster:
    """The same as a cluster for the launcher."""
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
        for index, role in enumerate(roles)
    )
    return Cluster(hosts=hosts, backend="local", ports=Ports(), source="namespaces")


def _parse(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks check-scale",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
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
        "--seconds", type=arguments.positive, default=8.0, help="of each run (default 8)"
    )
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
