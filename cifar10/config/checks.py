"""What a configuration may be: values, paths, settings that contradict. Standard library only.

`cifar10.config.train_config` imports this module and checks each TrainConfig when it is made; so
the checks cannot name its type and take `Any`. What depends on the cluster is in
`cifar10.cluster.resolve`.
"""

import dataclasses
import math
from typing import Any

from cifar10 import schema
from cifar10.errors import ConfigError

_AT_LEAST_ONE = (
    "train_steps",
    "train_batch_size",
    "eval_batch_size",
    "hidden_units",
    "num_towers",
    "checkpoint_steps",
    "keep_checkpoints",
    "log_steps",
    "summary_steps",
    "replicas_to_aggregate",
    "learning_rate_batch",
)
_AT_LEAST_ZERO = (
    "cutout",
    "crop_padding",
    "lookahead_steps",
    "norm_bias_rate",
    "residual_scale",
    "whitening_bias_epochs",
    "num_gpus",
    "num_intra_threads",
    "num_inter_threads",
    "warmup_epochs",
    "weight_decay",
    "seed",
    "task_index",
)
_ABOVE_ZERO = (
    "learning_rate",
    "muon_rate",
    "batch_norm_epsilon",
    "train_epochs",
    "max_minutes",
    "cluster_timeout",
)
_BELOW_ONE = ("momentum", "muon_momentum", "batch_norm_decay", "label_smoothing")
_PATTERN_CHARACTERS = frozenset("*?[\\")


def flag_name(field_name: str) -> str:
    """`data_dir` -> `--data-dir`."""
    return "--" + field_name.replace("_", "-")


def check_config(config: Any) -> None:
    """Raises ConfigError for a value of a TrainConfig out of range and for contradictions."""
    _check_choices(config)
    _check_ranges(config)
    _check_paths(config)
    _check_model_settings(config)
    _check_contradictions(config)


def _check_choices(config: Any) -> None:
    for field in dataclasses.fields(config):
        value, choices = getattr(config, field.name), field.metadata["choices"]
        if choices and value is not None and value not in choices:
            raise ConfigError(
                f"{flag_name(field.name)} must be one of {', '.join(choices)}, got {value}"
            )


def _check_ranges(config: Any) -> None:
    def check(names: tuple[str, ...], rule: str, holds: Any) -> None:
        for name in names:
            value = getattr(config, name)
            if value is not None and not (math.isfinite(value) and holds(value)):
                raise ConfigError(f"{flag_name(name)} must be {rule}, got {value}")

    check(_AT_LEAST_ONE, "at least 1", lambda value: value >= 1)
    check(_AT_LEAST_ZERO, "at least 0", lambda value: value >= 0)
    check(_ABOVE_ZERO, "above 0", lambda value: value > 0)
    check(_BELOW_ONE, "at least 0 and below 1", lambda value: 0 <= value < 1)
    check(("cutout",), f"at most {schema.HEIGHT}", lambda value: value <= schema.HEIGHT)
    check(("crop_padding",), f"below {schema.HEIGHT}", lambda value: value < schema.HEIGHT)
    check(("seed",), "below 2**31", lambda value: value < 2**31)
    if config.layers < 8 or config.layers % 6 != 2:
        raise ConfigError(
            f"--num-layers must be 6n+2 (8, 14, 20, 32, 44, ...), got {config.layers}"
        )


def _check_paths(config: Any) -> None:
    for name in ("data_dir", "output_dir", "log_dir", "work_dir", "checkpoint"):
        if getattr(config, name) == "":
            raise ConfigError(f"{flag_name(name)} must not be empty; leave it out for the default")
    for name in ("output_dir", "checkpoint"):
        path = config.place(getattr(config, name) or "")
        if not _PATTERN_CHARACTERS.isdisjoint(path):
            # It would save checkpoints there and never find them again.
            raise ConfigError(
                f"{flag_name(name)} must not contain *, ?, [ or \\, which TensorFlow takes for "
                f"patterns, got {path}"
            )


def _refuse(message: str) -> None:
    raise ConfigError(message)


def _check_model_settings(config: Any) -> None:
    if not config.is_resnet and config.num_layers is not None:
        _refuse(f"--num-layers is for resnets, got --model {config.model}; leave it out")
    if not config.is_resnet and config.residual_scale is not None:
        _refuse(f"--residual-scale is for resnets, got --model {config.model}; leave it out")
    if config.model != "mlp" and config.hidden_units is not None:
        _refuse(f"--hidden-units is for --model mlp, got --model {config.model}; leave it out")
    if config.model != "fastnet" and config.is_set("whitening_bias_epochs"):
        _refuse(
            f"--whitening-bias-epochs is for --model fastnet, got --model {config.model}; leave it "
            "out"
        )
    if config.model == "mlp" and config.data_format is not None:
        _refuse("--data-format is for convolutions, got --model mlp; leave it out")
    _check_normalisation(config)
    _check_optimizer(config)


def _check_optimizer(config: Any) -> None:
    for name in ("momentum", "norm_bias_rate"):
        if config.optimizer == "adam" and config.is_set(name):
            _refuse(f"{flag_name(name)} is for --optimizer momentum, nesterov and muon, got adam")
    for name in ("muon_rate", "muon_momentum"):
        if config.optimizer != "muon" and config.is_set(name):
            _refuse(f"{flag_name(name)} is for --optimizer muon, got {config.optimizer}")
    if config.optimizer == "muon" and (config.model == "mlp" or config.batch_norm == "off"):
        _refuse(
            "--optimizer muon is for convolutions with batch normalisation, which makes up for the "
            f"length of their kernels; got --model {config.model} --batch-norm {config.batch_norm}"
        )


def _check_normalisation(config: Any) -> None:
    for name in ("batch_norm", "batch_norm_decay", "batch_norm_epsilon", "norm_bias_rate"):
        if config.is_set(name) and config.model == "mlp":
            _refuse(f"{flag_name(name)} is for batch normalisation; --model mlp has none")
    for name in ("batch_norm_decay", "batch_norm_epsilon"):
        if config.is_set(name) and config.batch_norm == "off":
            _refuse(f"{flag_name(name)} is for batch normalisation, but --batch-norm is off")


def _check_contradictions(config: Any) -> None:
    if config.train_steps is not None and config.train_epochs is not None:
        _refuse("--train-steps and --train-epochs both say how long to train; give one")
    if config.mode == "predict" and not config.images:
        _refuse("--mode predict needs image files: --mode predict cat.png dog.jpg")
    if config.mode != "predict" and config.images:
        _refuse(
            f"image files are for --mode predict, got {config.images[0]} with --mode {config.mode}"
        )
    if config.mode == "train_and_evaluate" and config.checkpoint is not None:
        _refuse(
            "--checkpoint is for --mode evaluate, predict and export; training continues by itself"
        )
    if config.variable_strategy == "GPU" and config.num_gpus == 0:
        _refuse("--variable-strategy GPU needs GPUs, but --num-gpus is 0")
    if config.num_gpus and config.num_towers is not None and config.num_towers % config.num_gpus:
        _refuse(
            f"--num-towers must be a multiple of --num-gpus, got {config.num_towers} towers "
            f"on {config.num_gpus} GPUs"
        )
    if config.num_towers is not None and config.train_batch_size % config.num_towers:
        _refuse(
            f"--train-batch-size must be a multiple of the towers, got {config.train_batch_size} "
            f"images for {config.num_towers} towers"
        )
    for name in ("cutout", "crop_padding", "crop_fill", "flip"):
        if config.is_set(name) and not config.use_distortion_for_training:
            _refuse(
                f"{flag_name(name)} distorts training images, but --use-distortion-for-training is "
                "false"
            )
    if config.is_set("crop_fill") and config.crop_padding == 0:
        _refuse("--crop-fill fills what a shift uncovers, but --crop-padding is 0; leave it out")
    if config.replicas_to_aggregate is not None and config.replication == "in-graph":
        _refuse(
            "--replicas-to-aggregate is for --replication between-graph; in-graph waits for all"
        )
    if config.replicas_to_aggregate is not None and not config.sync:
        _refuse("--replicas-to-aggregate is for synchronous updates; leave it out, or --sync=false")
