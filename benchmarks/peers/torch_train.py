"""Trains a ResNet v1 in PyTorch with the settings of the recipes resnet20 and resnet44.

    PYTHON_WITH_TORCH -m benchmarks.peers.torch_train --archive cifar-10-python.tar.gz
    PYTHON_WITH_TORCH -m benchmarks.peers.torch_train --archive ... --depth 44 --epochs 30

Its accuracy is a yardstick for that of cifar10_main.py, with which it shares no code. The settings
are those of the recipes: batches of 128, Nesterov momentum .9, a learning rate that rises to .1 in
the first epoch and falls to 0 along a cosine, a weight decay of 2e-4 for kernels, random shifts of
up to four pixels with a black border, and random flips. The rest is as usual in PyTorch:
initialisation by fan-out (He et al. 2015) with residual branches at their full scale, PyTorch's
default for the last layer, padding of one position on each side, moving statistics that decay by
.9, and normalisation over the whole batch. 5,000 of the training images, chosen by the seed, are
for validation; the weights of the last epoch are evaluated. Needs torch and numpy.
"""

import argparse
import json
import math
import pickle
import tarfile
import time
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from benchmarks.peers.networks import PRECISIONS
from benchmarks.peers.torch_step import resnet

_BATCH, _EVAL_BATCH, _VALIDATION = 128, 500, 5000
_RATE, _MOMENTUM, _DECAY = 0.1, 0.9, 2e-4
_SIDE, _SHIFT = 32, 4


def main() -> None:
    """Trains, prints a line after each epoch, and then the figures of the last one as JSON."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--archive", required=True, help="the Python version of CIFAR-10, from a source you trust"
    )
    parser.add_argument("--depth", type=int, default=20, help="layers: 6 n + 2")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--precision", choices=PRECISIONS, default="fp32")
    arguments = parser.parse_args()
    if arguments.depth < 8 or arguments.depth % 6 != 2:
        parser.error(f"--depth must be 6 n + 2, such as 20 or 44, got {arguments.depth}")
    torch.manual_seed(arguments.seed)
    train, validation, evaluation = _splits(arguments.archive)
    training = _Training(arguments.depth, arguments.epochs, train[0], arguments.precision)
    started = time.perf_counter()
    row: dict[str, Any] = {}
    for epoch in range(1, arguments.epochs + 1):
        row = {"epoch": epoch, "train": round(training.epoch(*train), 4)}
        row["validation"] = round(training.accuracy(*validation), 4)
        row["seconds"] = round(time.perf_counter() - started)
        print("  ".join(f"{name} {value}" for name, value in row.items()), flush=True)
    print(json.dumps({**row, "eval": round(training.accuracy(*evaluation), 4)}))


def _splits(archive: str) -> list[tuple[Any, Any]]:
    """Returns the images and labels for training, validation and evaluation.

    Images are uint8 [n, 3, 32, 32], labels int64 [n].
    """
    images, labels = {}, {}
    with tarfile.open(archive) as files:
        for member in files:
            name, content = member.name.rsplit("/", 1)[-1], files.extractfile(member)
            if content and "_batch" in name:
                batch = pickle.load(content, encoding="bytes")
                images[name] = torch.as_tensor(batch[b"data"]).reshape(-1, 3, _SIDE, _SIDE)
                labels[name] = torch.as_tensor(batch[b"labels"])
    given = sorted(name for name in images if name.startswith("data_batch"))
    pixels = torch.cat([images[name] for name in given])
    classes = torch.cat([labels[name] for name in given])
    order = torch.randperm(len(pixels))
    parts = order[_VALIDATION:], order[:_VALIDATION]
    splits = [(pixels[part], classes[part]) for part in parts]
    return [*splits, (images["test_batch"], labels["test_batch"])]


class _Training:
    """A network, and how it is trained.

    Args:
      depth: number of layers.
      epochs: number of epochs until the rate is 0.
      images: the training images.
      precision: one of PRECISIONS; with bf16, autocast computes in it.
    """

    def __init__(self, depth: int, epochs: int, images: Any, precision: str) -> None:
        self._net = resnet(depth).to(memory_format=torch.channels_last)
        for layer in self._net.modules():
            if isinstance(layer, nn.Conv2d):
                nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")
        weights = list(self._net.parameters())
        groups = [
            {"params": [one for one in weights if one.ndim > 1], "weight_decay": _DECAY},
            {"params": [one for one in weights if one.ndim == 1], "weight_decay": 0.0},
        ]
        self._optimizer = torch.optim.SGD(groups, _RATE, _MOMENTUM, nesterov=True)
        warm_up = len(images) // _BATCH
        steps = epochs * warm_up

        def factor(step: int) -> float:
            rise = min(1.0, (step + 1) / warm_up)
            return rise * 0.5 * (1 + math.cos(math.pi * step / steps))

        self._schedule = torch.optim.lr_scheduler.LambdaLR(self._optimizer, factor)
        self._bf16 = precision == "bf16"
        deviation, mean = torch.std_mean(images.float(), (0, 2, 3), keepdim=True)
        self._mean, self._deviation = mean, deviation

    def epoch(self, images: Any, labels: Any) -> float:
        """Trains on each image once; leaves out those that do not fill a batch.

        Returns:
          The accuracy on the augmented images.
        """
        right, order = 0, torch.randperm(len(images))
        steps = len(images) // _BATCH
        for part in order[: steps * _BATCH].split(_BATCH):
            logits = self._logits(_augmented(images[part]))
            loss = functional.cross_entropy(logits, labels[part])
            self._optimizer.zero_grad()
            loss.backward()
            self._optimizer.step()
            self._schedule.step()
            right += int((logits.argmax(1) == labels[part]).sum())
        return right / (steps * _BATCH)

    def accuracy(self, images: Any, labels: Any) -> float:
        """Returns the accuracy on the images as they are."""
        self._net.eval()
        with torch.no_grad():
            found = [self._logits(part).argmax(1) for part in images.split(_EVAL_BATCH)]
        self._net.train()
        return float((torch.cat(found) == labels).float().mean())

    def _logits(self, images: Any) -> Any:
        standardised = (images.float() - self._mean) / self._deviation
        with torch.autocast("cpu", torch.bfloat16, enabled=self._bf16):
            logits = self._net(standardised.contiguous(memory_format=torch.channels_last))
        return logits.float()


def _augmented(images: Any) -> Any:
    """Shifts each image by up to four pixels, with a black border, and flips half of them."""
    count = len(images)
    padded = functional.pad(images, (_SHIFT,) * 4)
    places = torch.arange(_SIDE)
    rows = torch.randint(0, 2 * _SHIFT + 1, (count, 1)) + places
    columns = torch.randint(0, 2 * _SHIFT + 1, (count, 1)) + places
    is_flipped = torch.rand(count, 1) < 0.5
    columns = torch.where(is_flipped, columns.flip(1), columns)
    return padded[
        torch.arange(count)[:, None, None, None],
        torch.arange(3)[None, :, None, None],
        rows[:, None, :, None],
        columns[:, None, None, :],
    ]


if __name__ == "__main__":
    main()
