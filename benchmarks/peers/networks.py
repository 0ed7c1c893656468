"""The networks that `compare` trains, and how the peers time their steps.

Standard library only, since the Python that has PyTorch may lack this project's requirements.
"""

import argparse
import json
import statistics
import time
from collections.abc import Sequence
from typing import NamedTuple, Optional


class Network(NamedTuple):
    """A network, how it is trained, and how long one measurement is.

    Attributes:
      flags: flags that make cifar10_main.py train the network.
      depth: number of layers of a ResNet v1; 0 for fastnet.
      batch_size: images per step.
      warm_up: number of steps before the timed ones.
      steps: number of timed steps; they take some seconds on two cores.
      momentum: momentum of the peers' optimizers, as in ours; Nesterov momentum for fastnet.
      label_smoothing: label smoothing of the peers' losses, as in ours.
    """

    flags: tuple[str, ...]
    depth: int
    batch_size: int = 128
    warm_up: int = 5
    steps: int = 20
    momentum: float = 0.9
    label_smoothing: float = 0.0


# As in all but the first three of the recipe's ten epochs, the whitening layer does not train, nor
# does its bias.
_FASTNET = ("--recipe=airbench94", "--whitening-bias-epochs=0")
NETWORKS = {
    "resnet-20": Network(("--model=resnet", "--num-layers=20"), 20),
    "resnet-44": Network(("--model=resnet", "--num-layers=44"), 44, steps=16),
    "fastnet": Network(
        _FASTNET, 0, batch_size=1024, warm_up=1, steps=3, momentum=0.85, label_smoothing=0.2
    ),
}
STAGE_FILTERS = (16, 32, 64)  # filters of a ResNet's convolutions, by stage
GROUP_FILTERS = (64, 256, 256)  # filters of fastnet's convolutions, by group
WHITENING_FILTERS = 24  # 2x2 filters, twice as many as the 12 numbers of a patch
LOGIT_FACTOR = 1 / 9  # scale of fastnet's logits
PRECISIONS = ("fp32", "bf16")


def peer_run(description: str, ways: Sequence[str] = ()) -> tuple[Network, argparse.Namespace]:
    """Parses the command line that all peers share.

    Args:
      description: for --help.
      ways: the values of --way, if there are several.

    Returns:
      The network, with the requested batch size and number of steps; and the other arguments.
    """
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=description, formatter_class=raw)
    parser.add_argument("--network", choices=list(NETWORKS), default="resnet-44")
    parser.add_argument("--batch-size", type=int, help="default: the network's own")
    parser.add_argument("--precision", choices=PRECISIONS, default="fp32")
    parser.add_argument("--steps", type=int, help="timed (default: the network's own)")
    if ways:
        parser.add_argument("--way", choices=ways, required=True)
    arguments = parser.parse_args()
    network = NETWORKS[arguments.network]
    return sized(network, arguments.batch_size, arguments.steps), arguments


def sized(network: Network, batch_size: Optional[int], steps: Optional[int]) -> Network:
    """Returns a network with a batch size and number of steps, its own ones where None is given."""
    steps = steps or network.steps
    return network._replace(batch_size=batch_size or network.batch_size, steps=steps)


class StepTimes:
    """Times the steps of a peer.

    Args:
      network: the network, with its batch size and its numbers of warm-up and timed steps.

    Attributes:
      total_steps: number of steps to train, the warm-up included.
    """

    def __init__(self, network: Network) -> None:
        self.total_steps = network.warm_up + network.steps
        self._network = network
        self._ends: list[float] = []

    def step_ended(self) -> None:
        """Records that a step has just ended."""
        self._ends.append(time.perf_counter())

    def print_rate(self) -> None:
        """Prints a JSON line with images/s, from the median time of a step after the warm-up."""
        ends = self._ends[self._network.warm_up - 1 :]
        median = statistics.median(later - end for end, later in zip(ends, ends[1:]))
        print(json.dumps({"images_per_sec": round(self._network.batch_size / median, 1)}))
