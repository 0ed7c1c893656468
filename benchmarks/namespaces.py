"""Machines on this machine: network namespaces whose links have a given speed and delay.

A pair of virtual Ethernet devices leads from each to a bridge, and a token bucket (tc-tbf) at each
end limits it. Few kernels that come small have netem, so a delay is made here: machines of the two
sides have a bridge each, and frames cross between them by way of two TAP devices, through
benchmarks/delay.py, which holds each frame for as long. Linux, root, and Debian's iproute2.
"""

import contextlib
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, Optional

from benchmarks.delay import DelayRelay
from benchmarks.errors import BenchmarkError
from launch.cluster.model import Host
from launch.connect.transport import Transport

_NETWORK = "10.79.0"
_BRIDGES = ("bmbr0", "bmbr1")
_TAPS = ("bmtap0", "bmtap1")
_MAX_QUEUE = "50ms"
_BURST = "64kb"  # a segment of the longest kind; what may pass at once after a pause


class Machine(NamedTuple):
    """One of them.

    Attributes:
      side: 0 or 1; a delay is between the sides.
      cores: that it may use, as taskset has them.
    """

    side: int
    cores: str


def why_not() -> Optional[str]:
    """Why there can be no such machines here; None if there can."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    missing = [name for name in ("ip", "tc", "nsenter", "taskset") if shutil.which(name) is None]
    return f"no {', '.join(missing)} here; Debian has iproute2 and util-linux" if missing else None


class Machines:
    """Use as a context: leaving it removes all of them.

    Args:
      machines: what there is to be.
      bytes_per_sec: of each machine's link, each way; None: as fast as it goes.
      delay_secs: one way, between the sides.

    Raises:
      BenchmarkError: there can be none here.
    """

    def __init__(
        self,
        machines: Sequence[Machine],
        bytes_per_sec: Optional[float] = None,
        delay_secs: float = 0.0,
    ) -> None:
        why = why_not()
        if why:
            raise BenchmarkError(why)
        self._machines, self._bytes_per_sec = list(machines), bytes_per_sec
        self._delay_secs = delay_secs
        self._relay: Optional[DelayRelay] = None
        self.transport = Transport(self._command, _explain, _log_path, keeps_logs=True)

    def address(self, index: int) -> str:
        """A machine's address."""
        return f"{_NETWORK}.{index + 1}"

    def name(self, index: int) -> str:
        """A machine's name."""
        return f"bm{index}"

    def __enter__(self) -> "Machines":
        self._remove()
        try:
            self._make()
        except subprocess.CalledProcessError as error:
            self.__exit__()
            words = " ".join(error.cmd)
            raise BenchmarkError(f"{words}: {error.stderr.strip()}") from None
        except OSError as error:
            self.__exit__()
            raise BenchmarkError(f"no TAP devices here, for a delay: {error.strerror}") from None
        return self

    def __exit__(self, *_: object) -> None:
        if self._relay is not None:
            self._relay.close()
        self._remove()

    def _make(self) -> None:
        for bridge in _BRIDGES[: 2 if self._delay_secs else 1]:
            _run("ip", "link", "add", bridge, "type", "bridge")
            _run("ip", "link", "set", bridge, "up")
        if self._delay_secs:
            self._relay = DelayRelay(_TAPS, self._delay_secs)
            for tap, bridge in zip(_TAPS, _BRIDGES):
                _run("ip", "link", "set", tap, "master", bridge, "up")
        for index, machine in enumerate(self._machines):
            self._add(self.name(index), self.address(index), machine.side)

    def _add(self, name: str, address: str, side: int) -> None:
        inside = ("ip", "-n", name)
        bridge = _BRIDGES[side if self._delay_secs else 0]
        _run("ip", "netns", "add", name)
        pair = ("type", "veth", "peer", "name", "eth0", "netns", name)
        _run("ip", "link", "add", f"v{name}", *pair)
        _run("ip", "link", "set", f"v{name}", "master", bridge, "up")
        _run(*inside, "addr", "add", f"{address}/24", "dev", "eth0")
        for device in ("lo", "eth0"):
            _run(*inside, "link", "set", device, "up")
        if self._bytes_per_sec:
            bucket = ("tbf", "rate", f"{8 * self._bytes_per_sec:.0f}bit", "burst", _BURST)
            for tc, device in ((("tc",), f"v{name}"), (("tc", "-n", name), "eth0")):
                words = ("qdisc", "add", "dev", device, "root", *bucket, "latency", _MAX_QUEUE)
                _run(*tc, *words)

    def _remove(self) -> None:
        for index in range(len(self._machines)):
            for words in (
                ("link", "del", f"v{self.name(index)}"),
                ("netns", "del", self.name(index)),
            ):
                with contextlib.suppress(subprocess.CalledProcessError):
                    _run("ip", *words)
        for bridge in _BRIDGES:
            with contextlib.suppress(subprocess.CalledProcessError):
                _run("ip", "link", "del", bridge)

    def _command(self, host: Host, command: Sequence[str], line: str) -> list[str]:
        cores = self._machines[int(host.name[2:])].cores
        return ["nsenter", f"--net=/run/netns/{host.name}", "taskset", "-c", cores, *command]


def _explain(host: Host, code: int, errors: str) -> str:
    return f"the agent ended with exit code {code}: {errors or 'without a word'}"


def _log_path(log: Path, run_id: str) -> str:
    return str(log.absolute())


def _run(*words: str) -> None:
    subprocess.run(words, check=True, capture_output=True, text=True)
