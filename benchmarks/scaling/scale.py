"""Predicts the speed with more trainers, more parameter servers or another network, by a model.

    python -m benchmarks scale --link 1Gbit --trainers 1 4 16 64 --ps 1 4 -- --train-batch-size=128

Trains for some seconds on this machine, alone and with one and two parameter servers, fits the
constants of the model (benchmarks/scaling/step_model.py), and predicts images/s for trainers and
parameter servers that each have a machine like this one. `--save FILE` writes the constants to a
file, and `--constants FILE` reads them instead of measuring them.
"""

import argparse
import dataclasses
import json
import math
import pathlib
from collections.abc import Callable, Sequence

from rich.console import Console
from rich.table import Table

from benchmarks import arguments
from benchmarks.errors import BenchmarkError
from benchmarks.scaling import jobs
from benchmarks.scaling.measured_run import Run
from benchmarks.scaling.step_model import (
    Constants,
    Link,
    Measured,
    Shape,
    fit,
    images_per_sec,
    predict,
)
from cifar10.config import flags
from launch.cluster.host_list import on_this_machine

_ROUNDS = 3


def main(argv: Sequence[str]) -> int:
    """Fits the model and prints its predictions."""
    options = _parse(argv)
    config = options.config
    local = flags.parse([*jobs.words_of(config, {"data_dir"}), arguments.data_flag(config)])
    constants = find_constants(
        options, lambda ps: Run(on_this_machine(0, ps), local, options.seconds)
    )
    console = Console(highlight=False)
    console.print(constants_text(constants), soft_wrap=True)
    link = Link(options.link, options.round_trip_ms / 1000)
    console.print(prediction_table(constants, link, options.trainers, options.ps))
    return 0


def add_constants_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the flags that `find_constants` reads."""
    parser.add_argument(
        "--seconds", type=arguments.positive, default=5.0, help="of each run (default 5)"
    )
    files = parser.add_mutually_exclusive_group()
    files.add_argument("--save", type=pathlib.Path, metavar="FILE", help="keep the constants there")
    files.add_argument("--constants", type=pathlib.Path, metavar="FILE", help="do not measure them")


def find_constants(options: argparse.Namespace, run_with: Callable[[int], Run]) -> Constants:
    """Reads the constants from --constants, or measures them and writes them to --save.

    Args:
      options: the parsed flags of `add_constants_arguments`.
      run_with: number of parameter servers -> the run to measure.

    Raises:
      BenchmarkError: the file is invalid, or a run failed.
    """
    if options.constants:
        return read_constants(options.constants)
    constants = measure_constants(run_with)
    if options.save:
        text = json.dumps(dataclasses.asdict(constants), indent=1)
        options.save.write_text(text + "\n", encoding="utf-8")
    return constants


def measure_constants(run_with: Callable[[int], Run]) -> Constants:
    """Fits the model to runs of one trainer: alone, with one and with two parameter servers.

    Args:
      run_with: number of parameter servers -> the run to measure.

    Raises:
      BenchmarkError: a run failed.
    """
    rounds: list[dict[int, Measured]] = []
    log_steps = 1
    for _ in range(_ROUNDS):
        rounds.append({})
        for ps in (0, 1, 2):
            figures = jobs.measure(dataclasses.replace(run_with(ps), log_steps=log_steps))
            log_steps = jobs.log_steps_for(figures.step_secs)
            rounds[-1][ps] = Measured(
                step_secs=figures.step_secs,
                jitter=figures.jitter,
                server_cpu_secs=figures.server_cores / max(1, ps) * figures.step_secs,
                step_bytes=figures.sent_bytes * figures.step_secs,
            )
    return fit(run_with(0).config.train_batch_size, rounds)


def read_constants(path: pathlib.Path) -> Constants:
    """Reads a file that --save wrote.

    Raises:
      BenchmarkError: the file cannot be read or is not of that form.
    """
    names = {field.name for field in dataclasses.fields(Constants)}
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise BenchmarkError(f"--constants {path}: {error}; --save writes such a file") from None
    is_whole = isinstance(values, dict) and set(values) == names
    if not is_whole or not all(
        isinstance(value, (int, float)) and 0 <= value < 1e15 for value in values.values()
    ):
        raise BenchmarkError(
            f"--constants {path} must hold the numbers {', '.join(sorted(names))}; --save writes "
            "such a file"
        )
    return Constants(**values)


def constants_text(constants: Constants) -> str:
    """Describes the constants in one line."""
    server_ms = 1000 * constants.server_cpu(1)
    return (
        f"a step of {constants.batch_size} images: {1000 * constants.compute_secs:.1f} ms of "
        f"computing (deviation {100 * constants.jitter:.0f} %), "
        f"{constants.step_bytes / 1e6:.2f} MB, {1000 * constants.own_secs:.1f} ms of calls, "
        f"{server_ms:.1f} ms of a parameter server's CPU"
    )


def prediction_table(
    constants: Constants, link: Link, trainers: Sequence[int], ps: Sequence[int]
) -> Table:
    """Returns a table of predicted images/s for each number of trainers and parameter servers.

    Efficiency is the share of the images/s of as many trainers that each train alone.
    """
    speed = "none" if math.isinf(link.bytes_per_sec) else f"{link.bytes_per_sec * 8e-6:,.0f} Mbit/s"
    title = f"predicted; link {speed}, round trip {1000 * link.round_trip_secs:g} ms"
    table = Table("trainers", "ps", title=title)
    for name in ("asynchronous, images/s", "efficiency", "synchronous, images/s", "efficiency"):
        table.add_column(name, justify="right")
    table.add_column("most of an asynchronous step")
    alone = constants.batch_size / constants.compute_secs
    for count in trainers:
        for servers in ps:
            cells = []
            for sync in (False, True):
                rate = images_per_sec(constants, Shape(count, servers, sync), link)
                cells += [f"{rate:,.0f}", f"{100 * rate / alone / count:.0f} %"]
            step = dataclasses.asdict(predict(constants, Shape(count, servers), link))
            table.add_row(str(count), str(servers), *cells, max(step, key=lambda part: step[part]))
    return table


def _parse(argv: Sequence[str]) -> argparse.Namespace:
    parser = arguments.new_parser("scale", __doc__)
    whole = arguments.at_least_one
    parser.add_argument("--trainers", nargs="+", type=whole, default=[1, 2, 4, 8, 16, 32, 64])
    parser.add_argument("--ps", nargs="+", type=whole, default=[1, 4])
    parser.add_argument(
        "--link",
        type=arguments.bytes_per_sec,
        default="1Gbit",
        help="of each machine, such as 100Mbit (default 1Gbit)",
    )
    parser.add_argument(
        "--round-trip-ms", type=arguments.positive, default=0.2, help="(default 0.2)"
    )
    add_constants_arguments(parser)
    return arguments.parse(parser, argv)
