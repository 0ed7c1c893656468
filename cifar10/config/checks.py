"""Checks of a configuration: values, paths and contradictions. Standard library only.

Checks that depend on the cluster are in `cifar10.cluster.resolve`.
"""

import os
import re
import sys

from cifar10 import models, optim
from cifar10.config.fields import FIELDS, ConfigFields
from cifar10.config.values import check_value, why_pointless
from cifar10.errors import ConfigError
from cifar10.settings import flag_name
from cifar10_program.paths import is_opened_as_utf8

_PATTERN_CHARACTERS = frozenset("*?[\\")


def check_config(config: ConfigFields) -> None:
    """Checks all settings of a run.

    Raises:
      ConfigError: a value is not allowed, or settings contradict each other.
    """
    for name in FIELDS:
        check_value(name, getattr(config, name), flag_name(name))
    _check_paths(config)
    _check_needs(config)
    _check_model(config)
    _check_contradictions(config)
    _check_seeds(config)
    _check_profile(config)


def _check_seeds(config: ConfigFields) -> None:
    if config.seeds is None:
        return
    if not re.fullmatch(r"[0-9]{1,10}(,[0-9]{1,10})*", config.seeds, re.ASCII):
        _refuse(f"--seeds must be numbers with commas between them, 1,2,3, got {config.seeds!r}")
    seeds = config.seed_list
    if max(seeds) >= 2**31:
        _refuse(f"--seeds must be at least 0 and below {2**31}, got {max(seeds)}")
    if len(set(seeds)) < len(seeds):
        _refuse(f"--seeds must all be different, got {config.seeds}")
    if config.is_set("seed"):
        _refuse(f"--seed {config.seed} and --seeds {config.seeds} contradict each other; give one")


def _check_profile(config: ConfigFields) -> None:
    steps = config.profile_steps
    if steps is None:
        return
    if not re.fullmatch(r"[0-9]{1,10}:[0-9]{1,10}", steps, re.ASCII):
        _refuse(f"--profile-steps must be the first and the last step, 100:110, got {steps!r}")
    first, last = config.profile_window or (0, 0)
    if not 1 <= first <= last:
        _refuse(
            f"--profile-steps must begin at step 1 or later and not end before that, got {steps}"
        )


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


def _check_paths(config: ConfigFields) -> None:
    for name in ("data_dir", "output_dir", "log_dir", "work_dir", "checkpoint", "init_checkpoint"):
        value = getattr(config, name)
        if value == "":
            raise ConfigError(f"{flag_name(name)} must not be empty; leave it out for the default")
        if "\0" in (value or ""):
            _refuse(f"{flag_name(name)} must not contain a NUL, got {value!r}")
        if value is not None and not is_opened_as_utf8(os.path.expanduser(value)):
            raise ConfigError(
                f"{flag_name(name)} must be UTF-8, as TensorFlow's paths are, got {value!r}"
                f"{_way_to_utf8()}"
            )
        if value is not None and os.path.expanduser(value).startswith("~"):
            user = value[1:].partition("/")[0]
            what = f"there is no user {user}" if user else "this user has no home; set HOME"
            _refuse(f"{flag_name(name)} {value}: {what}; a folder of that name here is ./{value}")
    for name in ("output_dir", "checkpoint", "init_checkpoint"):
        value = getattr(config, name)
        path = "" if value is None else config.place(value)
        if not _PATTERN_CHARACTERS.isdisjoint(path):
            # TensorFlow would save checkpoints there but not find them again.
            raise ConfigError(
                f"{flag_name(name)} must not contain *, ?, [ or \\, which TensorFlow takes for "
                f"patterns, got {path}"
            )


def _way_to_utf8() -> str:
    encoding = sys.getfilesystemencoding()
    if encoding == "utf-8":
        return "; rename it"
    return f" in {encoding}, the encoding of this locale; set PYTHONUTF8=1 or rename it"


def _refuse(message: str) -> None:
    raise ConfigError(message)


def _check_needs(config: ConfigFields) -> None:
    """Refuses settings that are given, but have no effect beside the others."""
    values = {name: getattr(config, name) for name in FIELDS}
    for name, value in values.items():
        pointless = why_pointless(name, value, values)
        if pointless and config.is_set(name):
            _refuse(pointless)


def _check_model(config: ConfigFields) -> None:
    models.check_chosen(config)
    model = models.find(config.model)
    refusal = model.refusal(config)
    if refusal:
        _refuse(refusal)
    fits = model.normalises_convolutions and config.batch_norm != "off"
    optim.REGISTRY.check_settings(config)
    needs = optim.find(config.optimizer).needs_normalised_kernels
    # Runs of earlier versions are still evaluated and exported, by which nothing is trained.
    if needs and config.mode == "train_and_evaluate" and not fits:
        _refuse(
            f"--optimizer {config.optimizer} is for models with batch normalisation after each "
            f"convolution, which makes up for the length of its kernel; got --model {config.model} "
            f"--batch-norm {config.batch_norm}; --optimizer nesterov, with another --output-dir, "
            "trains every model"
        )


def _check_contradictions(config: ConfigFields) -> None:
    if config.train_steps is not None and config.train_epochs is not None:
        _refuse("--train-steps and --train-epochs both say how long to train; give one")
    if config.stop_at_accuracy is not None and config.stop_at_accuracy > 1:
        _refuse(
            "--stop-at-accuracy must be a fraction, at most 1, as all accuracies are, got "
            f"{config.stop_at_accuracy:g}; for {config.stop_at_accuracy:g} % give "
            f"{config.stop_at_accuracy / 100:g}"
        )
    if config.mode == "predict" and not config.images:
        _refuse("--mode predict needs image files: --mode predict cat.png dog.jpg")
    if config.mode != "predict" and config.images:
        _refuse(
            f"image files are for --mode predict, got {config.images[0]} with --mode {config.mode}"
        )
    if config.variable_strategy == "GPU" and config.num_gpus == 0:
        _refuse("--variable-strategy GPU needs GPUs, but --num-gpus is 0")
    if config.num_gpus and config.num_towers is not None and config.num_towers % config.num_gpus:
        _refuse(
            f"--num-towers must be a multiple of --num-gpus, got {config.num_towers} towers "
            f"on {config.num_gpus} GPUs"
        )
    if config.num_towers is not None:
        check_towers(config, config.num_towers)
