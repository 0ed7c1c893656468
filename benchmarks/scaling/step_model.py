"""A model of a training step: compute, bytes, round trips and waiting, with six fitted constants.

Asynchronous trainers are the customers of a closed queueing network: each computes by itself, then
uses a parameter server's link, its CPU and its link back. Mean value analysis (Reiser and
Lavenberg 1980, J. ACM 27:2) gives their throughput, waiting included; it holds for any distribution
of computing times, and for links that transfers share evenly, as with TCP. A step calls all
parameter servers at once, and they hold equal pieces of the weights, so the model has only one of
them. Synchronous trainers all read weights at once, and send gradients as they have computed them.
"""

import dataclasses
import math
import statistics
from collections.abc import Mapping, Sequence

import numpy as np

# Two follow from the form of a step: one to read the weights, and one for the server to fetch the
# gradient. Measurements give three (docs/scaling.md).
ROUND_TRIPS = 3.0
# An Ethernet frame takes 1,538 bytes on the wire, preamble and gap included, and carries 1,448 of
# a TCP stream. Interfaces count neither the gaps nor, for long writes, each frame's header.
FRAMING = 1538 / 1448

# TCP connections share a link unevenly. Of equal transfers that begin together over one link, half
# have ended after this part of the time that the link needs for all (docs/scaling.md).
_HALF_READ = 0.85


@dataclasses.dataclass(frozen=True)
class Constants:
    """The constants of the model, fitted to short runs.

    Attributes:
      batch_size: images per step of a trainer.
      step_bytes: bytes between a trainer and all servers in a step, both ways together.
      compute_secs: seconds of a trainer's step without servers.
      jitter: standard deviation of a step's time divided by that time.
      own_secs: seconds that servers add to a trainer's step, besides the servers' CPU time and the
        transfer: packing, copies, calls.
      server_secs: CPU seconds of each server in a step, whatever the size of its piece.
      server_secs_per_byte: further CPU seconds of a server for each byte of its piece that is
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


@dataclasses.dataclass(frozen=True)
class Link:
    """The network between any two machines.

    Attributes:
      bytes_per_sec: speed of a machine's link, each way; math.inf within a machine.
      round_trip_secs: seconds that a small message takes there and back.
    """

    bytes_per_sec: float = math.inf
    round_trip_secs: float = 0.0


@dataclasses.dataclass(frozen=True)
class Shape:
    """A cluster of trainers and parameter servers, each on a machine of its own.

    Attributes:
      trainers: number of trainers.
      ps: number of parameter servers.
      sync: whether an update waits for all trainers.
    """

    trainers: int
    ps: int
    sync: bool = False


@dataclasses.dataclass(frozen=True)
class Step:
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
        return self.compute + self.calls + self.wire + self.server + self.waiting


def predict(constants: Constants, shape: Shape, link: Link) -> Step:
    """Predicts how the time of a trainer's step is spent."""
    wire = constants.step_bytes * FRAMING / link.bytes_per_sec
    server = constants.server_cpu(shape.ps)
    calls = constants.own_secs + ROUND_TRIPS * link.round_trip_secs
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
        think = alone - sum(stations)
        waiting = cycle_secs(shape.trainers, think, stations) - alone
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


@dataclasses.dataclass(frozen=True)
class Measured:
    """The figures of a short run of one trainer.

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
      rounds: for each round, number of servers -> figures of a run with as many; the numbers must
        include 0 and two or more others.
    """
    numbers = [ps for ps in rounds[0] if ps]
    step_bytes = statistics.median(one[ps].step_bytes for one in rounds for ps in numbers)
    cpu = [statistics.median(one[ps].server_cpu_secs for one in rounds) for ps in numbers]
    start, slope = _line([step_bytes / ps for ps in numbers], cpu)
    compute = statistics.median(one[0].step_secs for one in rounds)
    added = statistics.median(
        one[ps].step_secs / one[0].step_secs - 1 for one in rounds for ps in numbers
    )
    return Constants(
        batch_size=batch_size,
        step_bytes=step_bytes,
        compute_secs=compute,
        jitter=statistics.median(one[0].jitter for one in rounds),
        own_secs=max(0.0, compute * added - statistics.mean(cpu)),
        server_secs=start,
        server_secs_per_byte=slope,
    )


def _line(xs: Sequence[float], ys: Sequence[float]) -> tuple[float, float]:
    """Fits a line whose intercept and slope are not negative; returns (intercept, slope)."""
    slope, start = np.polyfit(xs, ys, 1)
    if slope < 0:
        return statistics.mean(ys), 0.0
    if start < 0:
        return 0.0, float(np.dot(xs, ys) / np.dot(xs, xs))
    return float(start), float(slope)
