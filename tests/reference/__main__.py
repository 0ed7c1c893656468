"""Prints the table that docs/correctness.md sums up: `python -m tests.reference`."""

import platform
import sys

import tensorflow.compat.v1 as tf

from cifar10.host.cpu import cpu_name
from tests.reference.cases import CASES
from tests.reference.measure import Errors, measure


def main() -> int:
    """Measures each case and prints its errors, or why this machine cannot run it.

    Returns:
      The exit code: 1 if an error is larger than allowed, else 0.
    """
    print(f"TensorFlow {tf.__version__}, Python {platform.python_version()}, {cpu_name()}\n")
    print("| case | " + " | ".join(Errors._fields) + " | allowed |")
    print("|---|" + "---|" * (len(Errors._fields) + 1))
    failed = 0
    for case in CASES:
        if case.impossible:
            print(f"| {case.name} | left out: {case.impossible} |", flush=True)
            continue
        errors = measure(case)
        failed |= any(errors.beyond(case.tolerance).values())
        figures = ["–" if error is None else f"{error:.0e}" for error in errors]
        allowed = ", ".join(f"{limit:.0e}" for limit in case.tolerance)
        print(f"| {case.name} | " + " | ".join(figures) + f" | {allowed} |", flush=True)
    return failed


if __name__ == "__main__":
    sys.exit(main())
