"""One task of a measured job: cifar10_main.py, and twice a second a line with what it has used.

    TF_CONFIG=... python -m benchmarks.scaling.task FLAGS

takes the flags of cifar10_main.py but --output-dir: a master's is a folder of its own that is gone
afterwards, and the others have none, since a job that is measured may end them by SIGKILL.
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

from cifar10.main import main as train
from launch.cluster.model import LEADS

_MARK = "used: "
_EVERY_SECS = 0.5


class Used(NamedTuple):
    """What a task and its host have used so far.

    Attributes:
      cpu_secs: of the task, all threads.
      wire_bytes: sent by the host's network interfaces.
      loopback_bytes: sent within the host, by way of its network.
    """

    cpu_secs: float
    wire_bytes: float
    loopback_bytes: float


def read_used(line: str) -> Optional[Used]:
    """What a line of a task says of its use; None if it is about something else."""
    return Used(*json.loads(line[len(_MARK) :])) if line.startswith(_MARK) else None


def used_line(used: Used) -> str:
    """The line, without its end."""
    return _MARK + json.dumps(used)


def sent_bytes(lines: Iterable[str]) -> tuple[int, int]:
    """Bytes sent by all interfaces but the loopback, and by the loopback: /proc/net/dev's lines."""
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
        # Whole lines at once: training writes to the same pipe.
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
    sys.exit(main())
