"""Simulated machines: network namespaces whose links have a given speed and delay.

A pair of virtual Ethernet devices connects each namespace to a bridge, with a token bucket filter
(tc-tbf) at each end as speed limit. Minimal kernels often lack netem, so the delay is made in user
space: the machines of each side have a bridge, and two TAP devices connect the bridges through
testbeds/delay.py, which delays each frame. A machine may be held to a share of a core, by a control
group. Names of namespaces, devices and groups contain the id of the process that made them, so that
several processes can have machines at the same time. Needs Linux, root, and Debian's iproute2.
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
from testbeds.groups import Group, remove_dead

_NAMES = r"(bm[0-9a-f]+)m\d+"
_MAX_QUEUE = "50ms"
# What may pass at once after a pause: little beside a transfer, enough for timers that are late.
_BURST_BYTES, _BURST_SECS = 8192, 0.0005


class Machine(NamedTuple):
    """A machine to create.

    Attributes:
      side: 0 or 1; frames between the two sides are delayed.
      cores: cores that its processes may use, in the notation of taskset.
      share: the part of a core that all its processes together get, from `Machines.hold_to_share`
        on; None: no limit.
      is_preferred: whether its processes have a core before those of other machines.
    """

    side: int
    cores: str
    share: Optional[float] = None
    is_preferred: bool = False


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
        self._groups: dict[str, Group] = {}
        self._bridges = _bridges(self._mark)
        self._taps = (f"{self._mark}tap0", f"{self._mark}tap1")
        self.transport = Transport(self._command, _explain, _log_path, keeps_logs=True)

    def address(self, index: int) -> str:
        """Returns the IP address of a machine."""
        return f"{self._network}.{index + 1}"

    def name(self, index: int) -> str:
        """Returns the name of a machine, which is also that of its namespace."""
        return f"{self._mark}m{index}"

    def set_speed(self, bytes_per_sec: float) -> None:
        """Gives the link of each machine another speed, each way."""
        for index in range(len(self._machines)):
            self._limit(self.name(index), bytes_per_sec)

    def hold_to_share(self, name: str) -> None:
        """Limits a machine to its share of a core, if it has one; again is no error."""
        share = self._machine(name).share
        if share is not None:
            self._groups[name].limit_cpu(share)

    def lift_shares(self) -> None:
        """Ends the limits of `hold_to_share`."""
        for group in self._groups.values():
            group.limit_cpu(None)

    def __enter__(self) -> "Machines":
        remove_dead("cpu", _NAMES)
        for name, mark in namespaces.of_dead_processes(_NAMES):
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
        except BaseException:
            self.__exit__()
            raise
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
            if self._bytes_per_sec:
                self._limit(name, self._bytes_per_sec)
            if machine.share or machine.is_preferred:
                self._groups[name] = Group("cpu", name)
                if machine.is_preferred:
                    self._groups[name].prefer_cpu()

    def _limit(self, name: str, bytes_per_sec: float) -> None:
        burst = max(_BURST_BYTES, round(_BURST_SECS * bytes_per_sec))
        bucket = ("tbf", "rate", f"{8 * bytes_per_sec:.0f}bit", "burst", f"{burst}b")
        for tc, device in ((("tc",), f"v{name}"), (("tc", "-n", name), "eth0")):
            words = ("qdisc", "replace", "dev", device, "root", *bucket, "latency", _MAX_QUEUE)
            subprocess.run([*tc, *words], check=True, capture_output=True, text=True)

    def _remove(self) -> None:
        for index in range(len(self._machines)):
            namespaces.remove(self.name(index), f"v{self.name(index)}")
        for bridge in self._bridges:
            namespaces.remove_bridge(bridge)
        for group in self._groups.values():
            group.remove()

    def _command(self, host: Host, command: Sequence[str], line: str) -> list[str]:
        group = self._groups[host.name].enter() if host.name in self._groups else []
        cores = self._machine(host.name).cores
        return [*group, *namespaces.enter(host.name), "taskset", "-c", cores, *command]

    def _machine(self, name: str) -> Machine:
        return self._machines[int(name.removeprefix(f"{self._mark}m"))]


def _bridges(mark: str) -> list[str]:
    """Returns the names of the bridges of the two sides."""
    return [f"{mark}br{side}" for side in range(2)]


def _explain(host: Host, code: int, errors: str) -> str:
    return f"the agent ended with exit code {code}: {errors or 'without an error message'}"


def _log_path(log: Path, run_id: str) -> str:
    return str(log.absolute())
