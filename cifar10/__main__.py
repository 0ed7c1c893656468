"""`python -m cifar10` and the command `cifar10-train`: the same as `cifar10_main.py`."""

from cifar10.host.process import leave
from cifar10.main import main


def run() -> None:
    """Runs the program and ends the process with its exit code."""
    leave(main())


if __name__ == "__main__":
    run()
