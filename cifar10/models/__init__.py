"""The registry of models: those of this package, and others that `register` adds."""

from typing import Any

from cifar10.config.registry import Registry
from cifar10.models import fastnet, mlp, resnet
from cifar10.models.base import Model, Network

REGISTRY: Registry[Model] = Registry("model")
NAMES, register, unregister = REGISTRY.names, REGISTRY.register, REGISTRY.unregister
find = REGISTRY.find


def network(config: Any) -> Network:
    """Returns the network of the model that a `TrainConfig` names."""
    return find(config.model).network(config)


for _model in (resnet.V1, resnet.V2, fastnet.SMALL, fastnet.LARGE, mlp.MODEL):
    register(_model)
