"""The registry of models: those of this package, and others that `register` adds."""

import dataclasses
from collections.abc import Mapping
from typing import Any, Callable

from cifar10.models import fastnet, mlp, resnet
from cifar10.models.base import Model, Network

_MODELS: tuple[Model, ...] = (
    resnet.V1,
    resnet.V2,
    fastnet.SMALL,
    fastnet.LARGE,
    mlp.MODEL,
)
_REGISTRY: dict[str, Model] = {}
NAMES = _REGISTRY.keys()  # a view, which includes models that are registered later


def register(model: Model) -> None:
    """Adds a model, so that `--model` accepts its name.

    Raises:
      TypeError: the model lacks something that every model has.
      ValueError: there already is a model of that name.
    """
    model.check()
    if model.name in _REGISTRY:
        raise ValueError(f"there is a model {model.name} already; choose another name")
    _REGISTRY[model.name] = model


def unregister(name: str) -> None:
    """Removes a model."""
    del _REGISTRY[name]


def find(name: str) -> Model:
    """Returns the model of this name.

    Raises:
      LookupError: there is no such model.
    """
    if name not in _REGISTRY:
        raise LookupError(f"a model must be one of {', '.join(NAMES)}, got {name!r}")
    return _REGISTRY[name]


def check_chosen(config: Any) -> None:
    """Checks what only the settings of a run can show of the model that they name.

    Args:
      config: a `TrainConfig`.

    Raises:
      TypeError: some model's settings are not among those of a run, or the model has no title of
        its own.
    """
    for name, found in _REGISTRY.items():
        if not isinstance(config, found.settings) and dataclasses.fields(found.settings):
            raise TypeError(
                f"model {name}: its settings, {found.settings.__name__}, are no base class of "
                "ConfigFields; add them in cifar10/config/fields.py"
            )
    model = find(config.model)
    title = model.title(config)
    if not isinstance(title, str) or not title:
        raise TypeError(f"model {model.name} must have a title, a str, got {title!r}")
    for name, other in _REGISTRY.items():
        if other is not model and other.title(config) == title:
            raise TypeError(
                f"model {model.name} has the title of model {name}, {title!r}; give it one of its "
                "own"
            )


def network(config: Any) -> Network:
    """Returns the network of the model that a `TrainConfig` names."""
    return find(config.model).network(config)


def owners() -> Mapping[str, tuple[str, ...]]:
    """Maps each setting that belongs to certain models to the names of these models."""
    found: dict[str, tuple[str, ...]] = {}
    for model in _REGISTRY.values():
        for field in dataclasses.fields(model.settings):
            found[field.name] = (*found.get(field.name, ()), model.name)
    return found


def names_where(holds: Callable[[Model], bool]) -> tuple[str, ...]:
    """Returns the names of the models that fulfil a condition."""
    return tuple(name for name, model in _REGISTRY.items() if holds(model))


for _model in _MODELS:
    register(_model)
