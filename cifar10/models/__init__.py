"""The registry of models: functions of (Layers, images) -> logits, without devices or flags."""

import functools
from typing import Any, Callable

from cifar10.config.train_config import TrainConfig
from cifar10.models.fastnet import fastnet
from cifar10.models.layers import Layers
from cifar10.models.mlp import mlp
from cifar10.models.resnet import resnet, resnet_v2

# Layers, images float32 [N, 32, 32, 3], standardised -> logits float32 [N, 10].
Model = Callable[[Layers, Any], Any]


def _of_resnets(config: TrainConfig) -> dict[str, Any]:
    return {"num_layers": config.layers, "residual_scale": config.residual_scale}


REGISTRY: dict[str, Callable[[TrainConfig], Model]] = {
    "resnet": lambda config: functools.partial(resnet, **_of_resnets(config)),
    "resnet_v2": lambda config: functools.partial(resnet_v2, **_of_resnets(config)),
    "fastnet": lambda _: fastnet,
    "mlp": lambda config: functools.partial(mlp, hidden_units=config.units),
}


def build(config: TrainConfig) -> Model:
    """Returns the model that `config` names."""
    return REGISTRY[config.model](config)
