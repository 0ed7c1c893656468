"""Predicts the speed with more trainers, more parameter servers or another network, by a model.

    python -m benchmarks scale --link 1Gbit --trainers 1 4 16 64 --ps 1 4 -- --train-batch-size=128

Trains for some seconds on this machine, alone and with one and two parameter servers, fits the
constants of the model, and predicts images/s for trainers and parameter servers that each have a
machine like this one. `--save FILE` writes the constants to a file, and `--constants FILE` reads
them instead of measuring them.

The model of a training step (docs/scaling.md) is compute, bytes, round trips and waiting,
with six constants. Asynchronous trainers are the customers of a closed queueing network: each
computes by itself, then uses a parameter server's link, its CPU and its link back. Mean value
analysis (Reiser and Lavenberg 1980, J. ACM 27:2) gives their throughput, waiting included; it holds
for any distribution of computing times, and for links that transfers share evenly, as with TCP. A
step calls all parameter servers at once, and they hold equal shards of the weights, so the model
has only one of them. Synchronous trainers all read weights at once, and send gradients as they have
computed them.
"""

import argparse
import itertools
import json
import math
import pathlib
import statistics
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from benchmarks import arguments, runs
from benchmarks.arguments import BenchmarkError, at_least_one
from benchmarks.tables import as_markdown
from cifar10.config.train_config import TrainConfig

_ROUNDS = 3
_TRAINERS = [1, 2, 4, 8, 16, 32, 64]
# Two follow from the form of a step: one to read the weights, and one for the server to fetch the
# gradient. Measurements give three (docs/scaling.md).
_ROUND_TRIPS = 3.0
# An Ethernet frame takes 1,538 bytes on the wire, preamble and gap included, and carries 1,448 of
# a TCP stream. Interfaces count neither the gaps nor, for long writes, each frame's header.
_FRAMING = 1538 / 1448

# TCP connections share a link unevenly. Of equal transfers that begin together over one link, half
# have ended after this part of the time that the link needs for all (docs/internals/scaling.md).
_HALF_READ = 0.85


class Constants(NamedTuple):
    """The constants of the model, fitted to short runs.

    Attributes:
      batch_size: images per step of a trainer.
      step_bytes: bytes between a trainer and all servers in a step, both ways together.
      compute_secs: seconds of a trainer's step without servers.
      jitter: standard deviation of a step's time divided by that time.
      own_secs: seconds that servers add to a trainer's step, besides the servers' CPU time and the
        transfer: packing, copies, calls.
      server_secs: CPU seconds of each server in a step, whatever the size of its shard.
      server_secs_per_byte: further CPU seconds of a server for each byte of its shard that is
        transferred in a step, both ways together.
    """

    batch_size: int
    step_bytes: float
    compute_secs: float
    jitter: float
    own_secs: float
    server_secs: float
    server_secs_per_byte: float

    def server_cpu(self, ps: int) -> float:
        """Returns the CPU seconds of one of `ps` servers for one trainer's step."""
        return self.server_secs + self.server_secs_per_byte * self.step_bytes / ps


class Link(NamedTuple):
    """The network between any two machines.

    Attributes:
      bytes_per_sec: speed of a machine's link, each way; math.inf within a machine.
      round_trip_secs: seconds that a small message takes there and back.
    """

    bytes_per_sec: float = math.inf
    round_trip_secs: float = 0.0


class Shape(NamedTuple):
    """A cluster of trainers and parameter servers, each on a machine of its own.

    Attributes:
      trainers: number of trainers.
      ps: number of parameter servers.
      sync: whether an update waits for all trainers.
    """

    trainers: int
    ps: int
    sync: bool = False


class Step(NamedTuple):
    """How the time of a trainer's step in a steady job is spent; all in seconds.

    Attributes:
      compute: the trainer's own computing.
      calls: the trainer's work for calls to the servers, and round trips.
      wire: transfer of the step's bytes over an idle link.
      server: CPU time of a server for the step.
      waiting: waiting for other trainers at links and servers and, in synchronous training, for the
        slowest one to compute.
    """

    compute: float
    calls: float
    wire: float
    server: float
    waiting: float

    @property
    def secs(self) -> float:
        """Seconds of the whole step."""
        return sum(self)


def predict(constants: Constants, shape: Shape, link: Link) -> Step:
    """Predicts how the time of a trainer's step is spent."""
    wire = constants.step_bytes * _FRAMING / link.bytes_per_sec
    server = constants.server_cpu(shape.ps)
    calls = constants.own_secs + _ROUND_TRIPS * link.round_trip_secs
    compute = constants.compute_secs
    if shape.sync:
        spread = compute * constants.jitter * largest_of(shape.trainers)
        others = wire * max(0.0, shape.trainers / shape.ps - 1)
        waiting = max(
            spread + others / 2,  # for the weights, then for the slowest trainer
            others * (_HALF_READ + 0.5) / 2,  # until half have weights, then for half the gradients
            spread + (shape.trainers - 1) * server,
        )
    else:
        at_server = wire / shape.ps
        stations = (at_server / 2, at_server / 2, server)
        alone = compute + calls + wire + server
        waiting = cycle_secs(shape.trainers, alone - sum(stations), stations) - alone
    return Step(compute, calls, wire, server, waiting)


def images_per_sec(constants: Constants, shape: Shape, link: Link) -> float:
    """Predicts images/s of the whole job."""
    return shape.trainers * constants.batch_size / predict(constants, shape, link).secs


def cycle_secs(customers: int, think_secs: float, demands: Sequence[float]) -> float:
    """Returns the cycle time of a customer of a closed queueing network, by mean value analysis.

    Args:
      customers: number of customers that share the stations.
      think_secs: seconds that a customer spends outside the stations in each cycle.
      demands: seconds of service that a customer needs at each station in a cycle.
    """
    queues = [0.0] * len(demands)
    cycle = think_secs
    for count in range(1, customers + 1):
        times = [demand * (1 + queue) for demand, queue in zip(demands, queues)]
        cycle = think_secs + sum(times)
        queues = [count * time / cycle for time in times]
    return cycle


def largest_of(count: int) -> float:
    """Approximates the mean of the largest of `count` standard normal numbers (Blom 1958)."""
    if count == 1:
        return 0.0
    return statistics.NormalDist().inv_cdf((count - 0.375) / (count + 0.25))


class Measured(NamedTuple):
    """What a short run of one trainer has shown.

    Attributes:
      step_secs: median seconds of a step.
      jitter: standard deviation of a step's time divided by that time.
      server_cpu_secs: CPU seconds of one server per step; 0 without servers.
      step_bytes: bytes that all tasks together sent per step.
    """

    step_secs: float
    jitter: float = 0.0
    server_cpu_secs: float = 0.0
    step_bytes: float = 0.0


def fit(batch_size: int, rounds: Sequence[Mapping[int, Measured]]) -> Constants:
    """Fits the constants to runs of one trainer within a machine: alone, and with servers.

    The time that servers add is a small difference, and a machine's speed varies. So it is computed
    as a share of the step without servers in the same round, and medians are taken over the rounds.

    Args:
      batch_size: images per step in all runs.
      rounds: for each round, number of servers -> what a run with as many has shown; the
        numbers must include 0 and two or more others.
    """
    numbers = [ps for ps in rounds[0] if ps]
    step_bytes = statistics.median(measured[ps].step_bytes for measured in rounds for ps in numbers)
    cpu = [statistics.median(measured[ps].server_cpu_secs for measured in rounds) for ps in numbers]
    server_secs, secs_per_byte = _line([step_bytes / ps for ps in numbers], cpu)
    compute = statistics.median(measured[0].step_secs for measured in rounds)
    added = statistics.median(
        measured[ps].step_secs / measured[0].step_secs - 1 for measured in rounds for ps in numbers
    )
    jitter = statistics.median(measured[0].jitter for measured in rounds)
    own = max(0.0, compute * added - statistics.mean(cpu))
    return Constants(batch_size, step_bytes, compute, jitter, own, server_secs, secs_per_byte)


def _line(xs: Sequence[float], ys: Sequence[float]) -> tuple[float, float]:
    """Fits a line whose intercept and slope are not negative; returns (intercept, slope)."""
    slope, start = np.polyfit(xs, ys, 1)
    if slope < 0:
        return statistics.mean(ys), 0.0
    if start < 0:
        return 0.0, float(np.dot(xs, ys) / np.dot(xs, xs))
    return float(start), float(slope)


def main(argv: Sequence[str]) -> int:
    """Fits the model and prints its predictions."""
    options = _parse(argv)
    constants = options.constants or measure_constants(options.config, options.seconds)
    if options.save:
        options.save.write_text(json.dumps(constants._asdict(), indent=1) + "\n", encoding="utf-8")
    link = Link(options.link, options.round_trip_ms / 1000)
    print(
        f"a step of {constants.batch_size} images: {1000 * constants.compute_secs:.1f} ms of "
        f"computing (standard deviation {100 * constants.jitter:.0f} %), "
        f"{constants.step_bytes / 1e6:.2f} MB, {1000 * constants.own_secs:.1f} ms of calls, "
        f"{1000 * constants.server_cpu(1):.1f} ms of a parameter server's CPU\n"
        f"links of {link.bytes_per_sec * 8e-6:,.0f} Mbit/s, a round trip of "
        f"{options.round_trip_ms:g} ms\n"
    )
    print(prediction_table(constants, link, options.trainers, options.ps))
    return 0


def _parse(argv: Sequence[str]) -> argparse.Namespace:
    parser = arguments.new_parser("scale", __doc__, seconds=5.0)
    parser.add_argument("--trainers", nargs="+", type=at_least_one, default=_TRAINERS)
    parser.add_argument("--ps", nargs="+", type=at_least_one, default=[1, 4])
    text = "of each machine, such as 100Mbit (1Gbit)"
    parser.add_argument("--link", type=arguments.bytes_per_sec, default="1Gbit", help=text)
    parser.add_argument("--round-trip-ms", type=arguments.positive, default=0.2, help="(0.2)")
    files = parser.add_mutually_exclusive_group()
    files.add_argument("--save", type=pathlib.Path, metavar="FILE", help="keep the constants there")
    files.add_argument("--constants", type=read_constants, metavar="FILE", help="of an earlier run")
    return arguments.parse(parser, argv)


def measure_constants(config: TrainConfig, seconds: float) -> Constants:
    """Fits the model to runs of one trainer: alone, with one and with two parameter servers.

    Raises:
      BenchmarkError: a run failed.
    """
    rounds: list[dict[int, Measured]] = []
    log_steps, batch_size = 1, config.train_batch_size
    for _ in range(_ROUNDS):
        rounds.append({})
        for ps in (0, 1, 2):
            cost = runs.measure(config, ps=ps, seconds=seconds, log_steps=log_steps)
            secs = [batch_size / rate for rate in cost.rates]
            low, median, high = statistics.quantiles(secs, n=4)
            # Quartiles of a normal distribution are 1.349 standard deviations apart; a mean of n
            # steps varies sqrt(n) times less than one of them.
            jitter = (high - low) / 1.349 / median * log_steps**0.5
            server_cpu = cost.cpu_secs["ps/0"] if ps else 0.0
            rounds[-1][ps] = Measured(median, jitter, server_cpu, cost.sent_bytes)
            log_steps = runs.log_steps_for(cost.rate, batch_size)
    return fit(batch_size, rounds)


def read_constants(path: str) -> Constants:
    """Reads a file that --save wrote.

    Raises:
      BenchmarkError: the file cannot be read or is not of that form.
    """
    try:
        constants = Constants(**json.loads(pathlib.Path(path).read_text(encoding="utf-8")))
        if not all(0 <= value < 1e15 for value in constants):
            raise ValueError("a number is below 0 or too large")
    except (OSError, ValueError, TypeError, RecursionError) as error:
        raise BenchmarkError(f"--constants {path}: {error}; --save writes such a file") from None
    return constants


def prediction_table(
    constants: Constants, link: Link, trainers: Sequence[int], ps: Sequence[int]
) -> str:
    """Returns a table of predicted images/s for each number of trainers and parameter servers.

    Efficiency is the share of the images/s of as many trainers that each train alone.
    """
    alone = constants.batch_size / constants.compute_secs
    columns = [("trainers", "{trainers}"), ("ps", "{ps}")]
    for kind in ("asynchronous", "synchronous"):
        columns.append((f"{kind}, images/s", f"{{{kind}:,.0f}}"))
        columns.append(("efficiency", f"{{{kind}_share:.0%}}"))
    columns.append(("most of an asynchronous step", "{most}"))
    rows = []
    for count, servers in itertools.product(trainers, ps):
        step = predict(constants, Shape(count, servers), link)._asdict()
        row = {"trainers": count, "ps": servers, "most": max(step, key=lambda part: step[part])}
        for kind, sync in (("asynchronous", False), ("synchronous", True)):
            rate = images_per_sec(constants, Shape(count, servers, sync), link)
            row.update({kind: rate, f"{kind}_share": rate / alone / count})
        rows.append(row)
    return as_markdown(columns, rows)
