"""Runs one task of a measured job: cifar10_main.py, plus a line of resource use twice a second.

    TF_CONFIG=... python -m benchmarks.scaling.task FLAGS

takes the flags of cifar10_main.py except --output-dir. A master gets a temporary output folder. The
other tasks get none, since the end of a measured job may kill them with SIGKILL, which would leave
the folder behind.
"""

import json
import os
import pathlib
import sys
import tempfile
import threading
import time
from collections.abc import Iterable
from typing import Any, NamedTuple, Optional

from cifar10.host.process_end import leave
from cifar10.main import main as train
from launch.cluster.model import LEADS

_MARK = "used: "
_EVERY_SECS = 0.5


class Used(NamedTuple):
    """The resources that a task and its host have used so far.

    Attributes:
      cpu_secs: CPU seconds of the task, all threads together.
      wire_bytes: bytes sent by the host's network interfaces, without the loopback.
      loopback_bytes: bytes sent by the host's loopback interface.
    """

    cpu_secs: float
    wire_bytes: float
    loopback_bytes: float


def read_used(line: str) -> Optional[Used]:
    """Parses a line that `used_line` made; returns None for any other line."""
    return Used(*json.loads(line[len(_MARK) :])) if line.startswith(_MARK) else None


def used_line(used: Used) -> str:
    """Formats the line of resource use, without a newline."""
    return _MARK + json.dumps(used)


def sent_bytes(lines: Iterable[str]) -> tuple[int, int]:
    """Reads, from the lines of /proc/net/dev, the bytes sent: (other interfaces, loopback)."""
    wire = loopback = 0
    for line in lines:
        name, colon, numbers = line.partition(":")
        if colon and name.strip() == "lo":
            loopback += int(numbers.split()[8])
        elif colon:
            wire += int(numbers.split()[8])
    return wire, loopback


def _report() -> None:
    device_file = pathlib.Path("/proc/net/dev")
    while True:
        # Each line in one write, since training writes to the same pipe.
        lines = device_file.read_text().splitlines() if device_file.exists() else []
        used = Used(round(time.process_time(), 4), *sent_bytes(lines))
        os.write(1, f"{used_line(used)}\n".encode())
        time.sleep(_EVERY_SECS)


def main(argv: Optional[list[str]] = None) -> Any:
    """Runs the task and returns its exit code."""
    words = sys.argv[1:] if argv is None else argv
    threading.Thread(target=_report, daemon=True).start()
    if json.loads(os.environ["TF_CONFIG"])["task"]["type"] not in LEADS:
        return train([*words, f"--output-dir={tempfile.gettempdir()}/no-benchmark-writes-here"])
    with tempfile.TemporaryDirectory(prefix="benchmark-") as folder:
        return train([*words, f"--output-dir={folder}"])


if __name__ == "__main__":
    leave(main())
