"""The networks that are compared, for ours and for all peers, and how peers time their steps.

Standard library only: PyTorch's Python has nothing else of ours.
"""

import argparse
import json
import statistics
import time
from typing import NamedTuple


class Network(NamedTuple):
    """A network, how it is trained, and how long one measurement is.

    Attributes:
      flags: that make cifar10_main.py train it.
      depth: layers of a resnet v1; 0 for the fast net.
      batch_size: images a step.
      warm_up: steps before those that are timed.
      steps: that are timed; some seconds on two cores.
      momentum: of peers' optimizers, as ours; Nesterov's for the fast net.
      label_smoothing: of peers' losses, as ours.
    """

    flags: tuple[str, ...]
    depth: int
    batch_size: int = 128
    warm_up: int = 5
    steps: int = 20
    momentum: float = 0.9
    label_smoothing: float = 0.0


NETWORKS = {
    "resnet-20": Network(("--model=resnet", "--num-layers=20"), 20),
    "resnet-44": Network(("--model=resnet", "--num-layers=44"), 44, steps=16),
    # As in all epochs but the first three of ten: the whitening layer is fixed, its bias, too.
    "fastnet": Network(
        ("--recipe=airbench94", "--whitening-bias-epochs=0"),
        depth=0,
        batch_size=1024,
        warm_up=1,
        steps=3,
        momentum=0.85,
        label_smoothing=0.2,
    ),
}
STAGE_FILTERS = (16, 32, 64)  # of a resnet
GROUP_FILTERS = (64, 256, 256)  # of the fast net
WHITENING_FILTERS = 24  # of 2x2: twice the 12 numbers of a patch
LOGIT_FACTOR = 1 / 9  # of the fast net's head
PRECISIONS = ("fp32", "bf16")


def peer_run(description: str) -> tuple[Network, str]:
    """Reads the command line that every peer has.

    Returns:
      The network, with the batch size and the steps that are wanted; and the precision.
    """
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--network", choices=list(NETWORKS), default="resnet-44")
    parser.add_argument("--batch-size", type=int, help="default: the network's own")
    parser.add_argument("--precision", choices=PRECISIONS, default="fp32")
    parser.add_argument("--steps", type=int, help="timed (default: the network's own)")
    arguments = parser.parse_args()
    network = NETWORKS[arguments.network]
    return (
        network._replace(
            batch_size=arguments.batch_size or network.batch_size,
            steps=arguments.steps or network.steps,
        ),
        arguments.precision,
    )


class StepTimes:
    """Takes the time of each step of a peer.

    Args:
      network: what is trained, and how many steps are timed.

    Attributes:
      total_steps: all steps, those of the warm-up included.
    """

    def __init__(self, network: Network) -> None:
        self.total_steps = network.warm_up + network.steps
        self._network = network
        self._ends: list[float] = []

    def step_ended(self) -> None:
        """Notes that a step has just ended."""
        self._ends.append(time.perf_counter())

    def print_rate(self) -> None:
        """Prints the JSON line: images/s by the median step after the warm-up."""
        ends = self._ends[self._network.warm_up - 1 :]
        median = statistics.median(later - end for end, later in zip(ends, ends[1:]))
        print(json.dumps({"images_per_sec": round(self._network.batch_size / median, 1)}))
