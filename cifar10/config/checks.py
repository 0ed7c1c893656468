"""Checks of a configuration: values, paths and contradictions. Standard library only.

Checks that depend on the cluster are in `cifar10.cluster.resolve`.
"""

import os
from collections.abc import Mapping
from typing import Any, Callable, NoReturn, Optional

from cifar10 import models, optim
from cifar10.config.fields import MODES, ConfigFields
from cifar10.config.settings import Setting, flag_name, settings_of
from cifar10.errors import ConfigError
from cifar10_program.paths import is_opened_as_utf8

_WITH_CHECKPOINTS, _PATTERN = ("output_dir", "checkpoint", "init_checkpoint"), frozenset("*?[\\")


def check_config(config: ConfigFields, is_set: Callable[[str], bool]) -> None:
    """Checks all settings of a run.

    Args:
      config: the settings.
      is_set: whether the command line gives a setting, or it differs from its default.

    Raises:
      ConfigError: a value is not allowed, or settings contradict each other.
    """
    settings = settings_of(config)
    values = {name: getattr(config, name) for name in settings}
    for name, one in settings.items():
        one.check(values[name], one.flag)
        if one.metavar in ("DIR", "PATH") and values[name] is not None:
            _check_path(config, name, values[name])
    for name, one in filter(lambda row: is_set(row[0]), settings.items()):
        pointless = why_pointless(one, values[name], values)
        if pointless:
            _refuse(pointless)
        for other in filter(is_set, one.excludes):
            if None not in (values[name], values[other]):
                _refuse(
                    f"{one.flag} {values[name]} and {flag_name(other)} {values[other]} contradict "
                    "each other; give one"
                )
    refusal = models.find(config.model).refusal(config)
    if refusal:
        _refuse(refusal)
    _check_contradictions(config)


def why_pointless(setting: Setting, value: Any, others: Mapping[str, Any]) -> Optional[str]:
    """Says why a setting has no effect beside others; None if it has one, or is false.

    Args:
      setting: the setting, which says what it needs.
      value: its value.
      others: values of those other settings that are known, by name.
    """
    if value is False:
        return None
    name, needs = setting.flag, _needs(setting)
    # Runs of earlier versions are still evaluated and exported, by which nothing is trained.
    if setting.needs_of and others.get("mode", MODES[0]) == MODES[0]:
        name, needs = f"{name} {value}", {**needs, **setting.needs_of(value)}
    for other in filter(others.__contains__, needs):
        flag, got = flag_name(other), others[other]
        fitting = needs[other]() if callable(needs[other]) else needs[other]
        if fitting is True and not got:
            zero = "false" if got is False else 0
            return f"{name} has no effect: {flag} is {zero}; {setting.instead}"
        if fitting is not True and got not in fitting:
            rule = f"{flag} {' or '.join(fitting)}"
            return f"{name} is for {rule}, got {flag} {got}; {setting.instead}"
    return None


def _needs(setting: Setting) -> Mapping[str, Any]:
    """Returns `Setting.needs`, to which a setting of a model or an optimizer adds that."""
    needs = setting.needs
    for name, registry in (("model", models.REGISTRY), ("optimizer", optim.REGISTRY)):
        owners = registry.owners().get(setting.name)
        needs = needs if owners is None else {name: owners, **needs}
    return needs


def check_towers(config: ConfigFields, num_towers: int) -> None:
    """Checks that the towers get equal parts of each training batch.

    Args:
      config: the settings.
      num_towers: the number of towers, of --num-towers or chosen for the machine.

    Raises:
      ConfigError: this is training, and its batch is no multiple of the towers.
    """
    if config.mode == "train_and_evaluate" and config.train_batch_size % num_towers:
        _refuse(
            f"--train-batch-size must be a multiple of the towers, got {config.train_batch_size} "
            f"images for {num_towers} towers"
        )


def _check_path(config: ConfigFields, name: str, value: str) -> None:
    flag = flag_name(name)
    if not value:
        _refuse(f"{flag} must not be empty; leave it out for the default")
    if "\0" in value:
        _refuse(f"{flag} must not contain a NUL, got {value!r}")
    if not is_opened_as_utf8(os.path.expanduser(value)):
        _refuse(
            f"{flag} must be UTF-8, as TensorFlow's paths are, got {value!r}; rename it, or set "
            "PYTHONUTF8=1"
        )
    # TensorFlow would save checkpoints there but not find them again.
    if name in _WITH_CHECKPOINTS and not _PATTERN.isdisjoint(config.place(value)):
        _refuse(
            f"{flag} must not contain *, ?, [ or \\, which TensorFlow takes for patterns, got "
            f"{config.place(value)}"
        )


def _check_contradictions(config: ConfigFields) -> None:
    if config.mode == "predict" and not config.images:
        _refuse("--mode predict needs image files: --mode predict cat.png dog.jpg")
    if config.mode != "predict" and config.images:
        _refuse(
            f"image files are for --mode predict, got {config.images[0]} with --mode {config.mode}"
        )
    if config.variable_strategy == "GPU" and config.num_gpus == 0:
        _refuse("--variable-strategy GPU needs GPUs, but --num-gpus is 0")
    if config.num_towers is not None:
        check_towers(config, config.num_towers)


def _refuse(message: str) -> NoReturn:
    raise ConfigError(message)
