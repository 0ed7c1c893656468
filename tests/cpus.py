"""Tests of what depends on the CPU, with each limit of our kernels' instructions: `make test-cpus`.

    python -m tests.cpus [pytest's arguments]

Each limit that this machine has is tested with and without oneDNN. Left out is what `make test` has
run already: all instructions, with oneDNN.
"""

import itertools
import os
import re
import subprocess
import sys
import time

from cifar10.host.cpu import cpu_flags
from cifar10.ops.kernels.library import LIMIT, LIMITS
from tests.shell import ROOT

_TESTS = (
    "tests/cifar10/ops",
    "--ignore=tests/cifar10/ops/test_gpu_kernels.py",
    "tests/cifar10/step/test_devices.py",
    "tests/reference/test_training_step.py",
    "tests/cifar10/test_tutorial.py::test_every_flag_of_the_tutorial_trains_a_process_alone_with_a_note",
)
# What no instruction changes: how the library is compiled and found, and what it does with threads
# and memory. Such tests start processes.
_WORDS = (
    *("library", "compile", "build", "written", "blamed", "gpus", "memory", "megabytes"),
    *("no_tensor", "threads_and", "limit"),
)
_PICKED = " and ".join(f"not {word}" for word in _WORDS)
_FLAGS = ("", "avx2", "avx512bw", "avx512_bf16", "amx_bf16")  # those of LIMITS in /proc/cpuinfo


def main() -> int:
    """Runs all of them, prints a table, and returns 1 if a test has failed."""
    lacking = {limit: flag for limit, flag in zip(LIMITS, _FLAGS) if flag not in {"", *cpu_flags()}}
    here = [limit for limit in LIMITS if limit not in lacking]
    rows, failed = ["limit        oneDNN  passed skipped failed seconds"], False
    for limit, onednn in itertools.product(here, ("1", "0")):
        if (limit, onednn) == (here[-1], "1"):
            rows.append(f"{limit:<12} 1       by make test")
            continue
        begun = time.monotonic()
        done = subprocess.run(
            [
                sys.executable,
                "-m",
                "pytest",
                "-m",
                "not system",
                "-q",
                "-k",
                _PICKED,
                *_TESTS,
                *sys.argv[1:],
            ],
            cwd=ROOT,
            env={**os.environ, LIMIT: limit, "TF_ENABLE_ONEDNN_OPTS": onednn},
            stdout=subprocess.PIPE,
            text=True,
        )
        counts = {word: number for number, word in re.findall(r"(\d+) (\w+)", done.stdout[-200:])}
        words = (("passed",), ("skipped",), ("failed", "error", "errors"))
        numbers = [sum(int(counts.get(one, 0)) for one in group) for group in words]
        secs = time.monotonic() - begun
        rows.append("{:<12} {:<6} {:>7} {:>7} {:>6} {:>7.0f}".format(limit, onednn, *numbers, secs))
        print(done.stdout if done.returncode else rows[-1], flush=True)
        failed |= done.returncode != 0
    rows += [f"{limit:<12} left out: this CPU has no {flag}" for limit, flag in lacking.items()]
    print("\n".join(["", *rows]))
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
