"""The registry of models: those of this package, and others that `register` adds."""

from typing import Any

from cifar10.models import fastnet, mlp, resnet
from cifar10.models.base import Model, Network
from cifar10.registry import Registry

REGISTRY: Registry[Model] = Registry("model")
NAMES, register, unregister = REGISTRY.names, REGISTRY.register, REGISTRY.unregister
find = REGISTRY.find


def check_chosen(config: Any) -> None:
    """Checks what only the settings of a run can show of the model that they name.

    Args:
      config: a `TrainConfig`.

    Raises:
      TypeError: the model has no title of its own.
    """
    model = find(config.model)
    title = model.title(config)
    if not isinstance(title, str) or not title:
        raise TypeError(f"model {model.name} must have a title, a str, got {title!r}")
    for name in NAMES:
        if name != model.name and find(name).title(config) == title:
            raise TypeError(
                f"model {model.name} has the title of model {name}, {title!r}; give it one of its "
                "own"
            )


def network(config: Any) -> Network:
    """Returns the network of the model that a `TrainConfig` names."""
    return find(config.model).network(config)


for _model in (resnet.V1, resnet.V2, fastnet.SMALL, fastnet.LARGE, mlp.MODEL):
    register(_model)
