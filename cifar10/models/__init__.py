"""The models by name: a line each for those here, and `register` for others."""

import dataclasses
from collections.abc import Mapping
from typing import Any, Callable

from cifar10.models import fastnet, mlp, resnet
from cifar10.models.base import Model, Network

_MODELS: tuple[Model, ...] = (
    resnet.V1,
    resnet.V2,
    fastnet.MODEL,
    mlp.MODEL,
)
_REGISTRY: dict[str, Model] = {}
NAMES = _REGISTRY.keys()  # also of those that are registered later


def register(model: Model) -> None:
    """Adds a model: from now on `--model` knows it.

    Raises:
      ValueError: there is one of that name.
    """
    if model.name in _REGISTRY:
        raise ValueError(f"there is a model {model.name} already; choose another name")
    _REGISTRY[model.name] = model


def unregister(name: str) -> None:
    """Removes a model."""
    del _REGISTRY[name]


def find(name: str) -> Model:
    """The model of this name.

    Raises:
      LookupError: there is none.
    """
    if name not in _REGISTRY:
        raise LookupError(f"a model must be one of {', '.join(NAMES)}, got {name!r}")
    return _REGISTRY[name]


def network(config: Any) -> Network:
    """The network that a `TrainConfig` names."""
    return find(config.model).network(config)


def owners() -> Mapping[str, tuple[str, ...]]:
    """Settings that not all models have -> the models that have them."""
    found: dict[str, tuple[str, ...]] = {}
    for model in _REGISTRY.values():
        for field in dataclasses.fields(model.settings):
            found[field.name] = (*found.get(field.name, ()), model.name)
    return found


def names_where(holds: Callable[[Model], bool]) -> tuple[str, ...]:
    """The names of the models that fulfil a condition."""
    return tuple(name for name, model in _REGISTRY.items() if holds(model))


for _model in _MODELS:
    register(_model)
