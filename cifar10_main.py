"""Trains CIFAR-10: `python cifar10_main.py --train-batch-size=16`; see --help."""

from cifar10.host.process import leave
from cifar10.main import main

if __name__ == "__main__":
    leave(main())
