"""Recipes: sets of settings that belong together, by name or in a file. No TensorFlow.

Flags and --config override the recipe, and the recipe overrides the defaults. The settings have the
names of the fields of `cifar10.config.fields.ConfigFields`.
"""

import dataclasses
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from cifar10 import models, optim
from cifar10.config import settings_file
from cifar10.config.fields import FIELDS, MODES, MODES_WITH_KERNELS
from cifar10.config.values import nearest, why_pointless
from cifar10.errors import ConfigError


@dataclasses.dataclass(frozen=True)
class Recipe:
    """Settings that belong together.

    Attributes:
      summary: description of the recipe in one line.
      settings: values of the settings by name.
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


# The settings that all recipes for fastnet share.
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

# The settings of fastnet's recipes with Muon.
_FASTNET_MUON: Mapping[str, Any] = {
    **_FASTNET,
    "train_batch_size": 2048,
    "optimizer": "muon",
    "muon_rate": 0.24,
    "muon_momentum": 0.6,
    # This rate is for all weights but the kernels of convolutions. The published rate of the head,
    # 0.67, is for 2,000 images and for logits divided by 256. Here, they are divided by 9, so the
    # equivalent rate is 0.67 * 2000 * (9 / 256)^2. Each step decays the weights by 0.004.
    "learning_rate": 1.656,
    "learning_rate_batch": 2048,
    "weight_decay": 0.004 / 1.656,
}

RECIPES: Mapping[str, Recipe] = MappingProxyType(
    {
        "fast": Recipe(
            "fastnet with Muon in ten epochs, after airbench94 (Jordan 2024, arXiv:2404.00498)",
            {**_FASTNET_MUON, "train_epochs": 10.0},
        ),
        "best": Recipe(
            "a larger fastnet with Muon in 30 epochs, after airbench96 (Jordan 2024)",
            {
                **_FASTNET_MUON,
                "model": "fastnet_large",
                "train_epochs": 30.0,
                # More epochs and weights need more augmentation: the values of airbench96.
                "crop_padding": 4,
                "cutout": 12,
            },
        ),
        "airbench94": Recipe(
            "fastnet in ten epochs as airbench94 was published: Nesterov",
            {
                **_FASTNET,
                "train_batch_size": 1024,
                "train_epochs": 9.9,
                "optimizer": "nesterov",
                # The published rate and decay, 11.5 and 0.0153, are for 1,024 images, and leave out
                # the effect of momentum. Nesterov momentum of 0.85 makes a step 1 + 1 / (1 - 0.85)
                # times as long as the gradient, so the rate is 11.5 / 7.667. Here, the rate also
                # multiplies the decay, which is therefore divided by 11.5.
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
                # The same rate for every batch size, as in the tutorial.
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

# Pairs of settings that exclude each other: one that is given replaces the other.
_INSTEAD = {
    "train_steps": "train_epochs",
    "train_epochs": "train_steps",
    "seed": "seeds",
    "seeds": "seed",
}
# A recipe's learning rate is for its model and its optimizer, and for those that use the same
# rates. Those of one class do.
_RATES, _CHOICES = ("learning_rate", "learning_rate_batch"), ("model", "optimizer")
# Modes without which these change nothing, though a flag may give them.
_MODES = {"kernels": MODES_WITH_KERNELS, "replication": MODES[:1], "ps_transfer": MODES[:1]}


def find(name: str, flag: str) -> tuple[str, Recipe]:
    """Returns what results call a recipe, and the recipe.

    Args:
      name: name of the recipe, or what `settings_file.read` reads it from.
      flag: flag that names the recipe, for messages.

    Raises:
      ConfigError: there is no such recipe, or its file is wrong.
    """
    if name in RECIPES:
        return name, RECIPES[name]
    if not settings_file.is_path(name):
        raise ConfigError(
            f"{flag} must be one of {', '.join(RECIPES)}, or a file that ends in .yaml, .yml or "
            f".json, got {name!r}{nearest(name, RECIPES)}"
        )
    file = settings_file.read(name, flag, is_recipe=True)
    if file.is_result:
        raise ConfigError(f"{file.name} is the result of a run, no recipe; give it to --config")
    return file.name, Recipe("settings of your own", file.settings)


def under(recipe: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the settings of a recipe or a file that those given before leave in force.

    What replaces a setting or makes it meaningless removes it.

    Args:
      recipe: values of the settings of the recipe or the file, by name.
      given: values of the settings that the command line gives, by name.
    """
    left = {
        name: value
        for name, value in recipe.items()
        if name not in given and _INSTEAD.get(name) not in given
    }
    others = dict(given)
    while gone := [name for name, value in left.items() if _is_pointless(name, value, others)]:
        for name in gone:
            del left[name]
            others[name] = FIELDS[name].default  # What needs it goes, too.
    if not all(_keeps_rates(choice, recipe, {**left, **given}) for choice in _CHOICES):
        left = {name: value for name, value in left.items() if name not in _RATES}
    return left


def _is_pointless(name: str, value: Any, others: Mapping[str, Any]) -> bool:
    if others.get("mode", MODES[0]) not in _MODES.get(name, MODES):
        return True
    if name != "optimizer" or not optim.find(value).needs_normalised_kernels:
        return why_pointless(name, value, others) is not None
    fits = models.find(others["model"]).normalises_convolutions if "model" in others else True
    return not fits or others.get("batch_norm") == "off"


def _keeps_rates(choice: str, recipe: Mapping[str, Any], now: Mapping[str, Any]) -> bool:
    """Returns whether a recipe's rates fit the model, or the optimizer, that is chosen now."""
    own = recipe.get(choice)
    return own is None or _rates_of(choice, now.get(choice)) == _rates_of(choice, own)


def _rates_of(choice: str, value: Any) -> Any:
    """Returns a key that is equal for models, or optimizers, that use the same rates.

    Args:
      choice: "model" or "optimizer".
      value: name of the model or the optimizer.
    """
    return value and type((models if choice == "model" else optim).find(value))


def describe(name: str, recipe: Recipe) -> str:
    """Returns the text of a recipe: its summary, then a line with the flag of each setting."""
    lines = [f"{name}: {recipe.summary}"]
    for setting, value in recipe.settings.items():
        lines.append(f"  --{setting.replace('_', '-')} {_as_text(value)}")
    return "\n".join(lines)


def _as_text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else str(value)
