"""Recipes: named tables of settings that belong together. Standard library only.

A flag that is given beats the recipe, and the recipe beats the default. The names of the settings
are those of `cifar10.config.fields.ConfigFields`.
"""

import dataclasses
from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from cifar10 import models, schema


@dataclasses.dataclass(frozen=True)
class Recipe:
    """Settings that belong together.

    Attributes:
      summary: what it is for, one line.
      settings: their values by name.
    """

    summary: str
    settings: Mapping[str, Any]


def _resnet(num_layers: int, epochs: float) -> Recipe:
    return Recipe(
        f"ResNet-{num_layers} in {epochs:g} epochs: warm-up, then cosine",
        {
            "model": "resnet",
            "num_layers": num_layers,
            "train_batch_size": 128,
            "train_epochs": epochs,
            "optimizer": "nesterov",
            "learning_rate": 0.1,
            "learning_rate_batch": 128,
            "momentum": 0.9,
            "weight_decay": 2e-4,
            "schedule": "cosine",
            "warmup_epochs": 1.0,
        },
    )


# What both of its recipes have.
_FASTNET: Mapping[str, Any] = {
    "model": "fastnet",
    "whitening_bias_epochs": 3.0,
    "batch_norm_decay": 0.6,
    "momentum": 0.85,
    "decay_biases": True,
    "norm_bias_rate": 64.0,
    "label_smoothing": 0.2,
    "crop_padding": 2,
    "crop_fill": "reflect",
    "flip": "alternating",
    "schedule": "triangular",
    "warmup_epochs": 0.0,
    "lookahead_steps": 5,
    "test_time_augmentation": True,
}

RECIPES: Mapping[str, Recipe] = MappingProxyType(
    {
        "fast": Recipe(
            "fastnet with Muon in ten epochs, after airbench94 (Jordan 2024, arXiv:2404.00498)",
            {
                **_FASTNET,
                "train_batch_size": 2048,
                "train_epochs": 10.0,
                "optimizer": "muon",
                "muon_rate": 0.24,
                "muon_momentum": 0.6,
                # All but the convolutions: published for 2,000 images and logits divided by 256.
                # Ours are divided by 9, so the head's .67 is worth .67 * 2000 * (9 / 256)^2; and
                # each step decays by .004.
                "learning_rate": 1.656,
                "learning_rate_batch": 2048,
                "weight_decay": 0.004 / 1.656,
            },
        ),
        "airbench94": Recipe(
            "fastnet in ten epochs as airbench94 was published: Nesterov",
            {
                **_FASTNET,
                "train_batch_size": 1024,
                "train_epochs": 9.9,
                "optimizer": "nesterov",
                # Published as 11.5 and .0153 for 1,024 images, apart from momentum and from each
                # other. Nesterov momentum of .85 makes a step 1 + 1 / (1 - .85) times as long as
                # the gradient, so the rate is 11.5 / 7.667; it multiplies the decay, too.
                "learning_rate": 1.5,
                "learning_rate_batch": 1024,
                "weight_decay": 0.0153 / 11.5,
            },
        ),
        "tutorial": Recipe(
            "ResNet-44, 80,000 steps, with the settings of tensorflow/models' cifar10_estimator",
            {
                "model": "resnet",
                "num_layers": 44,
                "residual_scale": 1.0,
                "batch_norm_decay": 0.997,
                "batch_norm_epsilon": 1e-5,
                "train_batch_size": 128,
                "train_steps": 80_000,
                "optimizer": "momentum",
                # For any number of images, as the tutorial has it.
                "learning_rate": 0.1,
                "momentum": 0.9,
                "weight_decay": 2e-4,
                "decay_biases": True,
                "schedule": "staged",
                "warmup_epochs": 0.0,
            },
        ),
        "resnet20": _resnet(20, 10),
        "resnet44": _resnet(44, 30),
    }
)

# A setting that is given takes the place of the other one.
_INSTEAD = {"train_steps": "train_epochs", "train_epochs": "train_steps"}
# They are for the recipe's model and optimizer, and for those that learn at the same rates: models
# of one class do.
_RATES = ("learning_rate", "learning_rate_batch")
_SAME_RATES = {"nesterov": "momentum"}
_WITH_MOMENTUM = ("momentum", "nesterov", "muon")


class _Need(NamedTuple):
    """Other settings that a recipe's setting is for; it is left out where flags say otherwise.

    Attributes:
      others: the values that fit, by setting.
      value: the need is this value's alone; None: every value's.
    """

    others: Mapping[str, Collection[Any]]
    value: Any = None


def _needs() -> Mapping[str, _Need]:
    """What settings of recipes need, by setting."""
    has_norm = models.names_where(lambda model: model.normalises)
    fits_muon = models.names_where(lambda model: model.normalises and model.convolves)
    normalised = {"model": has_norm, "batch_norm": ("tower", "sync")}
    muon = {"model": fits_muon, "batch_norm": ("tower", "sync")}
    distorted = {"use_distortion_for_training": (True,)}
    return {
        **{name: _Need({"model": owners}) for name, owners in models.owners().items()},
        "batch_norm_decay": _Need(normalised),
        "batch_norm_epsilon": _Need(normalised),
        "norm_bias_rate": _Need({"model": has_norm, "optimizer": _WITH_MOMENTUM}),
        "momentum": _Need({"optimizer": _WITH_MOMENTUM}),
        "optimizer": _Need(muon, value="muon"),
        "muon_rate": _Need({"optimizer": ("muon",), **muon}),
        "muon_momentum": _Need({"optimizer": ("muon",), **muon}),
        "crop_padding": _Need(distorted),
        "crop_fill": _Need({**distorted, "crop_padding": range(1, schema.HEIGHT)}),
        "flip": _Need(distorted),
    }


def settings(name: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """What a recipe sets where the flags do not, and do not make it pointless.

    Args:
      name: of the recipe.
      given: settings that the command line has, with their values.
    """
    recipe, needs = RECIPES[name].settings, _needs()

    def keeps_rates(choice: str) -> bool:
        own = recipe[choice]
        if choice not in given:
            return applies(choice, own)
        return bool(_rates_of(choice, given[choice]) == _rates_of(choice, own))

    def applies(setting: str, value: Any) -> bool:
        if setting in given or _INSTEAD.get(setting) in given:
            return False
        if setting in _RATES and not all(map(keeps_rates, ("model", "optimizer"))):
            return False
        need = needs.get(setting)
        if need is None or need.value not in (None, value):
            return True
        return all(given[other] in fit for other, fit in need.others.items() if other in given)

    return {setting: value for setting, value in recipe.items() if applies(setting, value)}


def _rates_of(choice: str, value: str) -> Any:
    """The same for models, and for optimizers, that learn at the same rates."""
    return type(models.find(value)) if choice == "model" else _SAME_RATES.get(value, value)


def describe(name: str) -> str:
    """A recipe as people read it: its summary, and each setting as its flag."""
    recipe = RECIPES[name]
    lines = [f"{name}: {recipe.summary}"]
    for setting, value in recipe.settings.items():
        lines.append(f"  --{setting.replace('_', '-')} {_as_text(value)}")
    return "\n".join(lines)


def _as_text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else str(value)
