"""Compares the model of `scale` with real runs over links of a given speed and delay.

    python -m benchmarks check-scale -- --num-layers=20 --train-batch-size=64
    python -m benchmarks check-scale --share 0.06 --shapes 8x2 16x1sync -- --num-layers=8

Each shape is a real cluster whose processes run in network namespaces (testbeds/limited_links.py),
each trainer on one core, or with `--share` on a part of one, for more trainers than cores. The
constants are fitted over links without a limit. Each shape is then run, over one link after the
other, and predicted. The prediction takes its computing time from as many processes as there are
trainers, each training alone at the same time, since other load changes a machine's speed, and many
processes slow each other, even if each has its share. It is the mean of such runs just before and
just after the shape. Needs root. Without `--share`, if there are more trainers and servers than
cores, they share cores, which the model ignores.
"""

import argparse
import dataclasses
import re
import statistics
from collections.abc import Sequence

from rich.console import Console

from benchmarks import arguments
from benchmarks.scaling import jobs
from benchmarks.scaling.check_report import Result, line_of, table_of
from benchmarks.scaling.scale import add_constants_arguments, constants_text, find_constants
from benchmarks.scaling.step_model import Link, Shape
from benchmarks.scaling.trial import Reference, Trial, Wire, machines_of
from testbeds.limited_links import Machines

_SHAPES = (Shape(1, 1), Shape(2, 1), Shape(2, 2), Shape(2, 1, sync=True), Shape(2, 2, sync=True))
_LINKS = (Wire(125e6, 0.0), Wire(12.5e6, 0.0), Wire(125e6, 0.01))


def main(argv: Sequence[str]) -> int:
    """Fits the model, then predicts and runs each case."""
    options = _parse(argv)
    trial = Trial(options)
    console = Console(highlight=False)
    with Machines(machines_of(Shape(1, 2), options.share)) as machines:
        constants = find_constants(options, lambda ps: trial.run(Shape(1, ps), machines))
    console.print(constants_text(constants), soft_wrap=True)
    trial.log_steps = jobs.log_steps_for(constants.compute_secs)
    results: list[Result] = []
    before: dict[int, Reference] = {}
    for shape in options.shapes:
        count = shape.trainers
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
