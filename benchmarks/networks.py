"""The networks that are compared: one list for ours and for all peers. Standard library only."""

import argparse
from typing import NamedTuple

from cifar10.config import MODELS


class Network(NamedTuple):
    """What a network is called by whom.

    Attributes:
      flags: that make cifar10_main.py train it.
      depth: layers of a resnet v1; 0 for the fast net.
    """

    flags: tuple[str, ...]
    depth: int


_ALL = {
    "resnet-20": Network(("--model=resnet", "--num-layers=20"), 20),
    "resnet-44": Network(("--model=resnet", "--num-layers=44"), 44),
    "fastnet": Network(("--model=fastnet",), 0),
}
NETWORKS = {name: one for name, one in _ALL.items() if one.flags[0].partition("=")[2] in MODELS}
STAGE_FILTERS = (16, 32, 64)  # of a resnet
GROUP_FILTERS = (64, 256, 256)  # of the fast net
WHITENING_FILTERS = 24  # of 2x2: twice the 12 numbers of a patch
PRECISIONS = ("fp32", "bf16")


def peer_arguments(description: str) -> argparse.Namespace:
    """Reads the command line that every peer has."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--network", choices=list(_ALL), default="resnet-44")
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--precision", choices=PRECISIONS, default="fp32")
    parser.add_argument("--steps", type=int, default=30, help="timed, after a warm-up of five")
    arguments = parser.parse_args()
    arguments.depth = _ALL[arguments.network].depth
    return arguments
