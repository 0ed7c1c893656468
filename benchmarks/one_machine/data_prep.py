"""Measures the time and memory that `python -m data_prep` takes to convert a source.

    python -m benchmarks data-prep SOURCE [SOURCE ...] [--repeats 5]

Each SOURCE (cifar-10-python.tar.gz, an image tree, ...) is converted in a child process; the time
includes interpreter start, imports, reading, writing, reading back and fsync. Memory is the largest
sum of the resident sets of its processes, sampled every 20 ms; pages that processes share count
once for each. The load is the 1-minute load average before the runs, which shows other work on the
machine. The source's files are read once before, so that reading from disk is not measured.
"""

import os
import platform
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

from benchmarks.arguments import at_least_one, new_parser
from cifar10.host.cpu import count_cores, cpu_name
from launch.cluster.host_list import ROOT

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


def main(argv: Sequence[str]) -> None:
    """Measures every source and prints a table."""
    parser = new_parser("data-prep", __doc__)
    parser.add_argument("sources", nargs="+", metavar="SOURCE")
    parser.add_argument("--repeats", type=at_least_one, default=5, metavar="N", help="(default 5)")
    arguments = parser.parse_args(argv)
    print(_conditions(arguments.repeats))
    print("| source | median s | slowest s | CPU s | peak MB | load |\n|---|---|---|---|---|---|")
    for source in arguments.sources:
        if source != "synthetic":
            _read_once(Path(source))
        load = os.getloadavg()[0]
        runs = [_convert(source) for _ in range(arguments.repeats)]
        seconds, cpu_seconds, peaks = zip(*runs)
        print(
            f"| {Path(source).name} | {statistics.median(seconds):.1f} | {max(seconds):.1f} "
            f"| {statistics.median(cpu_seconds):.1f} | {max(peaks) / 1e6:.0f} | {load:.1f} |",
            flush=True,
        )


def _conditions(repeats: int) -> str:
    packages = ", ".join(f"{name} {version(name)}" for name in ("numpy", "pillow", "google-crc32c"))
    return (
        f"{count_cores()} cores of {cpu_name()}; Python {platform.python_version()}, {packages}; "
        f"n = {repeats}\n"
    )


def _read_once(path: Path) -> None:
    for file in [path] if path.is_file() else path.rglob("*"):
        if file.is_file():
            with file.open("rb") as content:
                while content.read(1 << 20):
                    pass


def _convert(source: str) -> tuple[float, float, int]:
    """Converts a source into a temporary folder; returns seconds, CPU seconds and peak bytes."""
    out = Path(tempfile.mkdtemp(prefix="data_prep-benchmark-"))
    command = [sys.executable, "-m", "data_prep", "--out", str(out), "--source"]
    command.append(source if source == "synthetic" else str(Path(source).resolve()))
    try:
        started, cpu_before = time.perf_counter(), _cpu_seconds()
        with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL) as process:
            peak = 0
            while process.poll() is None:
                peak = max(peak, _tree_bytes(process.pid))
                time.sleep(0.02)
        seconds = time.perf_counter() - started
        if process.returncode != 0:
            raise SystemExit(f"error: {' '.join(command)} ended with {process.returncode}")
        return seconds, _cpu_seconds() - cpu_before, peak
    finally:
        shutil.rmtree(out)


def _cpu_seconds() -> float:
    """Returns the CPU seconds of all children so far, which hardly depend on other load."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def _tree_bytes(pid: int) -> int:
    """Returns the resident bytes of a process and its descendants; 0 for one that has ended."""
    try:
        resident = int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE_BYTES
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return resident + sum(_tree_bytes(int(child)) for child in children)
