"""Assigns ports to the tasks of a host."""

from collections.abc import Sequence
from itertools import islice
from typing import Optional

from launch.cluster.model import LEADS, Host, Ports
from launch.errors import LaunchError

Numbers = Sequence[Optional[int]]


def num_ports(host: Host) -> int:
    """Returns the number of ports on which a host's tasks listen; an evaluator needs none."""
    return host.count(*LEADS, "worker", "ps")


def allot(rule: Ports, host: Host, found: Optional[Sequence[int]]) -> tuple[Numbers, Numbers]:
    """Returns the ports of a host's trainers (master, chief and workers), and those of its ps.

    Args:
      rule: the ports that the description gives: a first one, a range, or free ones.
      host: the host whose tasks need ports.
      found: the free ports found on the host, for a rule of free ports; if None, every port in the
        result is None.

    Raises:
      LaunchError: there are too few ports.
    """
    trainers, ps = host.count(*LEADS, "worker"), host.count("ps")
    if rule.low is None:
        numbers: Numbers = [None] * (trainers + ps) if found is None else found
        return numbers[:trainers], numbers[trainers : trainers + ps]
    last = rule.low + trainers + ps + 1 if rule.high is None else rule.high
    if last > 65_535 or last - rule.low + 1 < trainers + ps:
        raise LaunchError(
            f"ports {rule.low}-{rule.high or 65_535} are too few for the {trainers + ps} tasks of "
            f"{host.name}; widen the range, or start lower"
        )
    if rule.high is not None:
        numbers = range(rule.low, rule.high + 1)
        return numbers[:trainers], numbers[trainers : trainers + ps]
    # The first trainer and the first ps have the same ports on every host; others follow.
    further = iter(range(rule.low + 2, last + 1))
    return (
        [rule.low, *islice(further, trainers - 1)] if trainers else [],
        [rule.low + 1, *islice(further, ps - 1)] if ps else [],
    )
