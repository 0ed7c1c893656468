"""Simulated machines: network namespaces whose links have a given speed and delay.

A pair of virtual Ethernet devices connects each namespace to a bridge, with a token bucket filter
(tc-tbf) at each end as speed limit. Minimal kernels often lack netem, so the delay is made in user
space: the machines of each side have a bridge, and two TAP devices connect the bridges through
testbeds/delay.py, which delays each frame. Names of namespaces and devices contain the id of the
process that made them, so that several processes can have machines at the same time. Needs Linux,
root, and Debian's iproute2.
"""

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, Optional

from launch.cluster.model import Host
from launch.connect.transport import Transport
from testbeds import namespaces
from testbeds.delay import DelayRelay
from testbeds.errors import TestbedError

_MAX_QUEUE = "50ms"
_BURST = "64kb"  # what may pass at once after a pause; holds the longest TSO segment


class Machine(NamedTuple):
    """A machine to create.

    Attributes:
      side: 0 or 1; frames between the two sides are delayed.
      cores: cores that its processes may use, in the notation of taskset.
    """

    side: int
    cores: str


def why_not() -> Optional[str]:
    """Returns why this computer cannot provide such machines; None if it can."""
    return namespaces.why_not("tc", "taskset")


class Machines:
    """Simulated machines, as a context manager that creates and removes them.

    Args:
      machines: the machines to create.
      bytes_per_sec: speed of each machine's link, each way; None: no limit.
      delay_secs: delay between the two sides, one way.

    Raises:
      TestbedError: this computer cannot provide the machines.
    """

    def __init__(
        self,
        machines: Sequence[Machine],
        bytes_per_sec: Optional[float] = None,
        delay_secs: float = 0.0,
    ) -> None:
        why = why_not()
        if why:
            raise TestbedError(why)
        self._network = namespaces.unused_network()
        self._machines, self._bytes_per_sec = list(machines), bytes_per_sec
        self._delay_secs = delay_secs
        self._relay: Optional[DelayRelay] = None
        self._mark = f"bm{os.getpid():x}"
        self._bridges = _bridges(self._mark)
        self._taps = (f"{self._mark}tap0", f"{self._mark}tap1")
        self.transport = Transport(self._command, _explain, _log_path, keeps_logs=True)

    def address(self, index: int) -> str:
        """Returns the IP address of a machine."""
        return f"{self._network}.{index + 1}"

    def name(self, index: int) -> str:
        """Returns the name of a machine, which is also that of its namespace."""
        return f"{self._mark}m{index}"

    def __enter__(self) -> "Machines":
        for name, mark in namespaces.of_dead_processes(r"(bm[0-9a-f]+)m\d+"):
            namespaces.remove(name, f"v{name}")
            for bridge in _bridges(mark):
                namespaces.remove_bridge(bridge)
        try:
            self._make()
        except subprocess.CalledProcessError as error:
            self.__exit__()
            words = " ".join(error.cmd)
            raise TestbedError(f"{words}: {error.stderr.strip()}") from None
        except OSError as error:
            self.__exit__()
            raise TestbedError(f"no TAP devices here, for a delay: {error.strerror}") from None
        return self

    def __exit__(self, *_: object) -> None:
        if self._relay is not None:
            self._relay.close()
        self._remove()

    def _make(self) -> None:
        for bridge in self._bridges[: 2 if self._delay_secs else 1]:
            namespaces.add_bridge(bridge)
        if self._delay_secs:
            self._relay = DelayRelay(self._taps, self._delay_secs)
            for tap, bridge in zip(self._taps, self._bridges):
                namespaces.ip("link", "set", tap, "master", bridge, "up")
        for index, machine in enumerate(self._machines):
            name, bridge = self.name(index), self._bridges[machine.side if self._delay_secs else 0]
            namespaces.add(name, f"v{name}", self.address(index), bridge)
            self._limit(name)

    def _limit(self, name: str) -> None:
        if self._bytes_per_sec:
            bucket = ("tbf", "rate", f"{8 * self._bytes_per_sec:.0f}bit", "burst", _BURST)
            for tc, device in ((("tc",), f"v{name}"), (("tc", "-n", name), "eth0")):
                words = ("qdisc", "add", "dev", device, "root", *bucket, "latency", _MAX_QUEUE)
                subprocess.run([*tc, *words], check=True, capture_output=True, text=True)

    def _remove(self) -> None:
        for index in range(len(self._machines)):
            namespaces.remove(self.name(index), f"v{self.name(index)}")
        for bridge in self._bridges:
            namespaces.remove_bridge(bridge)

    def _command(self, host: Host, command: Sequence[str], line: str) -> list[str]:
        cores = self._machines[int(host.name.removeprefix(f"{self._mark}m"))].cores
        return [*namespaces.enter(host.name), "taskset", "-c", cores, *command]


def _bridges(mark: str) -> list[str]:
    """Returns the names of the bridges of the two sides."""
    return [f"{mark}br{side}" for side in range(2)]


def _explain(host: Host, code: int, errors: str) -> str:
    return f"the agent ended with exit code {code}: {errors or 'without an error message'}"


def _log_path(log: Path, run_id: str) -> str:
    return str(log.absolute())
