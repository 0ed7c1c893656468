"""Trains the same network with the same batch size in PyTorch, in channels_last layout.

    PYTHON_WITH_TORCH -m benchmarks.peers.torch_step --network resnet-44 --precision bf16

Every step takes the same batch, without an input pipeline, which is less work than in
cifar10_main.py. bf16 is done by autocast. PyTorch chooses the number of threads (one per core).
Needs no package but torch.
"""

from typing import Any

import torch
from torch import nn
from torch.nn import functional

from benchmarks.peers import networks
from benchmarks.peers.networks import StepTimes, peer_run


def main() -> None:
    """Trains for the warm-up and the timed steps, and prints images/s as a JSON line."""
    network, arguments = peer_run(__doc__)
    times = StepTimes(network)
    model = resnet(network.depth) if network.depth else _Fastnet()
    model = model.to(memory_format=torch.channels_last)
    images = torch.randn(network.batch_size, 3, 32, 32).to(memory_format=torch.channels_last)
    labels = torch.arange(network.batch_size) % 10
    trained = [weights for weights in model.parameters() if weights.requires_grad]
    optimizer = torch.optim.SGD(trained, 0.1, network.momentum, nesterov=not network.depth)
    smoothing = network.label_smoothing
    for _ in range(times.total_steps):
        with torch.autocast("cpu", torch.bfloat16, enabled=arguments.precision == "bf16"):
            loss = functional.cross_entropy(model(images), labels, label_smoothing=smoothing)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        times.step_ended()
    times.print_rate()


def _conv(inputs: int, outputs: int, stride: int = 1) -> Any:
    return nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)


def _pooled(x: Any, more: int) -> Any:
    """Returns means of 2x2 positions, with half of the zero channels before the others, as ours."""
    return functional.pad(functional.avg_pool2d(x, 2), (0, 0, 0, 0, more // 2, more // 2))


class _Block(nn.Module):
    def __init__(self, inputs: int, outputs: int, shortcut: Any) -> None:
        super().__init__()
        self.more, self.shortcut = outputs - inputs, shortcut
        stride = 2 if self.more else 1
        self.conv1, self.norm1 = _conv(inputs, outputs, stride), nn.BatchNorm2d(outputs)
        self.conv2, self.norm2 = _conv(outputs, outputs), nn.BatchNorm2d(outputs)

    def forward(self, x: Any) -> Any:
        y = functional.relu(self.norm1(self.conv1(x)))
        y = self.norm2(self.conv2(y))
        return functional.relu(y + (self.shortcut(x, self.more) if self.more else x))


def resnet(depth: int, shortcut: Any = _pooled) -> Any:
    """Returns a ResNet v1 for images of CIFAR-10, with PyTorch's own initialisation.

    Args:
      depth: the number of layers, 6n+2.
      shortcut: function of a stage's input, [N, C, H, W], and the number of further channels to
        the shortcut [N, C + further, H / 2, W / 2] of the stage's first block.
    """
    width = networks.STAGE_FILTERS[0]
    parts: list[Any] = [_conv(3, width), nn.BatchNorm2d(width), nn.ReLU()]
    for filters in networks.STAGE_FILTERS:
        for _ in range(depth // 6):
            parts.append(_Block(width, filters, shortcut))
            width = filters
    return nn.Sequential(*parts, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 10))


class _Fastnet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        width = networks.WHITENING_FILTERS
        parts: list[Any] = [nn.Conv2d(3, width, 2).requires_grad_(False), nn.GELU()]
        for filters in networks.GROUP_FILTERS:
            parts += [_conv(width, filters), nn.MaxPool2d(2), _offset_norm(filters), nn.GELU()]
            parts += [_conv(filters, filters), _offset_norm(filters), nn.GELU()]
            width = filters
        parts += [nn.AdaptiveMaxPool2d(1), nn.Flatten(), nn.Linear(width, 10, bias=False)]
        self.layers = nn.Sequential(*parts)

    def forward(self, x: Any) -> Any:
        return networks.LOGIT_FACTOR * self.layers(x)


def _offset_norm(filters: int) -> Any:
    norm = nn.BatchNorm2d(filters)
    norm.weight.requires_grad_(False)
    return norm


if __name__ == "__main__":
    main()
