"""What settings need of each other, and the checks of a configuration. Standard library only.

Checks that depend on the cluster are in `cifar10.cluster.resolve`.
"""

import os
from collections.abc import Callable, Mapping
from typing import Any, Optional

from cifar10 import models, optim
from cifar10.config.fields import MODES, MODES_WITH_KERNELS, ConfigFields
from cifar10.config.settings import Setting, flag_name, settings_of, shown
from cifar10.errors import ConfigError
from cifar10_program.paths import is_opened_as_utf8

REGISTRIES: Mapping[str, Any] = {"model": models.REGISTRY, "optimizer": optim.REGISTRY}
_TRAINS, _EVALUATES = {"mode": MODES[:1]}, {"mode": MODES_WITH_KERNELS}
_DISTORTED = {"use_distortion_for_training": True}
_NORMALISED = {"model": "normalises", "batch_norm": ("tower",)}

# What a setting needs of others to have an effect: the values that they must have. True: any but 0
# and false. For a model or an optimizer, a word is the attribute that it must have. A setting of a
# single model or optimizer needs that as well, and `Setting.needs` adds to the table from outside.
NEEDS: Mapping[str, Mapping[str, Any]] = {
    "json": {"mode": ("predict",)},
    "checkpoint": {"mode": MODES[1:]},
    "init_checkpoint": _TRAINS,
    "dry_run": _TRAINS,
    "profile_steps": _TRAINS,
    "replication": _TRAINS,
    "ps_transfer": _TRAINS,
    "kernels": _EVALUATES,
    "test_time_augmentation": _EVALUATES,
    "data_format": {"model": "convolves"},
    "batch_norm": {"model": "normalises"},
    "batch_norm_decay": _NORMALISED,
    "batch_norm_epsilon": _NORMALISED,
    "norm_bias_rate": {"model": "normalises", "optimizer": "follows_scale"},
    "decay_biases": {"weight_decay": True},
    "crop_padding": _DISTORTED,
    "crop_fill": {**_DISTORTED, "crop_padding": True},
    "flip": _DISTORTED,
    "cutout": _DISTORTED,
    "replicas_to_aggregate": {"replication": ("between-graph",), "sync": True},
}
ENDS = ("train_steps", "train_epochs")  # alternatives: each says when training ends
_WITH_CHECKPOINTS, _PATTERN = ("output_dir", "checkpoint", "init_checkpoint"), frozenset("*?[\\")


def needs_of(setting: Setting, value: Any) -> dict[str, Any]:
    """Returns what a value of a setting needs of others, as a row of `NEEDS`."""
    owners = {what: registry.owners() for what, registry in REGISTRIES.items()}
    found = {what: owner[setting.name] for what, owner in owners.items() if setting.name in owner}
    if setting.name == "optimizer" and optim.find(value).needs_normalised_kernels:
        found |= {**_NORMALISED, "model": "normalises_convolutions"}
    return {**found, **NEEDS.get(setting.name, {}), **setting.needs}


def why_without_effect(
    setting: Setting, value: Any, values: Mapping[str, Any]
) -> Optional[tuple[str, str]]:
    """Says beside which other setting a value has no effect, and why; None if it has one.

    Args:
      setting: the setting.
      value: its value; false is never refused.
      values: the values of all settings, by name.

    Returns:
      The name of the other setting, and the end of a sentence about the value.
    """
    for other, fitting in {} if value is False else needs_of(setting, value).items():
        flag, got = flag_name(other), values[other]
        if fitting is True and not got:
            return other, f"has no effect beside {flag} {shown(got)}"
        if isinstance(fitting, str):
            fitting = REGISTRIES[other].names_where(fitting)
        if fitting is not True and got not in fitting:
            return other, f"is for {flag} {' or '.join(fitting)}, got {flag} {got}"
    return None


def check_config(config: ConfigFields, is_set: Callable[[str], bool]) -> None:
    """Checks all settings of a run.

    Args:
      config: the settings.
      is_set: whether a setting is explicit, or differs from its default.

    Raises:
      ConfigError: a value is not allowed, or settings contradict each other.
    """
    settings = settings_of(type(config))
    values = {name: getattr(config, name) for name in settings}
    for name, setting in settings.items():
        setting.check(values[name], flag_name(name))
        if setting.metavar in ("DIR", "PATH") and values[name] is not None:
            _check_path(config, name, values[name])
    for name, setting in settings.items():
        found = why_without_effect(setting, values[name], values) if is_set(name) else None
        if found:
            shown_value = f"{flag_name(name)} {shown(values[name])}"
            raise ConfigError(f"{shown_value} {found[1]}; {setting.instead}")
    if None not in (config.train_steps, config.train_epochs):
        raise ConfigError(
            f"--train-steps {config.train_steps} and --train-epochs {config.train_epochs} "
            "contradict each other; give one"
        )
    refusal = models.find(config.model).refusal(config)
    if refusal:
        raise ConfigError(refusal)
    if config.mode == "predict" and not config.images:
        raise ConfigError("--mode predict needs image files: --mode predict cat.png dog.jpg")
    if config.mode != "predict" and config.images:
        raise ConfigError(
            f"image files are for --mode predict, got {config.images[0]} with --mode {config.mode}"
        )
    if config.variable_strategy == "GPU" and config.num_gpus == 0:
        raise ConfigError("--variable-strategy GPU needs GPUs, but --num-gpus is 0")
    if config.num_towers is not None:
        check_towers(config, config.num_towers)


def check_towers(config: ConfigFields, num_towers: int) -> None:
    """Checks that the towers get equal parts of each training batch.

    Args:
      config: the settings.
      num_towers: the number of towers, of --num-towers or chosen for the machine.

    Raises:
      ConfigError: this is training, and its batch is no multiple of the towers.
    """
    if config.mode == "train_and_evaluate" and config.train_batch_size % num_towers:
        raise ConfigError(
            f"--train-batch-size must be a multiple of the towers, got {config.train_batch_size} "
            f"images for {num_towers} towers"
        )


def _check_path(config: ConfigFields, name: str, value: str) -> None:
    flag = flag_name(name)
    if not value:
        raise ConfigError(f"{flag} must not be empty; leave it out for the default")
    if "\0" in value:
        raise ConfigError(f"{flag} must not contain a NUL, got {value!r}")
    if not is_opened_as_utf8(os.path.expanduser(value)):
        raise ConfigError(
            f"{flag} must be UTF-8, as TensorFlow's paths are, got {value!r}; rename it, or set "
            "PYTHONUTF8=1"
        )
    # TensorFlow would save checkpoints there but not find them again.
    if name in _WITH_CHECKPOINTS and not _PATTERN.isdisjoint(config.resolve(value)):
        raise ConfigError(
            f"{flag} must not contain *, ?, [ or \\, which TensorFlow takes for patterns, got "
            f"{config.resolve(value)}"
        )
