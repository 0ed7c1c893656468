"""What `--help` shows: its text, the flags that people use most, and the form of each value.

Standard library only. `--help-all` shows every flag.
"""

import dataclasses
from typing import Any, Optional

from cifar10.config.fields import FIELDS, KINDS
from cifar10.settings import flag_of
from cifar10_program import TRAIN, started_as
from cifar10_program.common_flags import BOOLEAN

# The headings of --help, in order.
GROUPS = ("job", "places", "model", "training", "devices", "cluster", "reporting")

# The settings that --help shows.
COMMON = (
    *("mode", "recipe", "images", "json", "checkpoint", "max_minutes", "verbose"),
    *("data_dir", "output_dir", "log_dir"),
    *("model", "num_layers"),
    *("train_steps", "train_epochs", "train_batch_size", "optimizer", "learning_rate", "schedule"),
    *("warmup_epochs", "momentum", "weight_decay", "label_smoothing", "cutout", "seed"),
    "test_time_augmentation",
    *("num_gpus", "num_towers", "precision"),
    "sync",
    *("checkpoint_steps", "keep_checkpoints"),
)

_DESCRIPTION = """\
Train CIFAR-10 with tf.estimator, evaluate, predict, export.

  {0} --train-batch-size=16          train, validate, evaluate, export
  {0} --mode evaluate                the best checkpoint on the eval split
  {0} --mode predict cat.png photos/ what the best checkpoint sees
  {0} --mode export                  a SavedModel
  {0} --recipe fast                  a good model in ten epochs
  {0} --config output/result.json --output-dir again    the same run again

Every flag may be written with dashes or underscores; [true|false]: alone, the flag means true."""

_METAVARS = {
    "recipe": "NAME|FILE",
    "images": "FILE",
    "checkpoint": "PATH",
    "ps_hosts": "HOST:PORT,...",
    "worker_hosts": "HOST:PORT,...",
}
_TYPES = {int: "INT", float: "FLOAT", str: "TEXT", bool: BOOLEAN}


def description() -> str:
    """Returns the text above the flags."""
    return _DESCRIPTION.format(started_as(TRAIN))


def metavar(name: str) -> str:
    """Returns what stands for the value of a setting."""
    choices = flag_of(FIELDS[name]).choices
    if choices:
        return f"{{{','.join(choices)}}}"
    return _METAVARS.get(name) or ("DIR" if name.endswith("_dir") else _TYPES[KINDS[name]])


def with_default(text: str, field: "dataclasses.Field[Any]") -> str:
    """Returns the help text of a setting with its default, if it has a fixed one."""
    default: Optional[object] = field.default
    if default is None or default == ():
        return text
    words = str(default).lower() if isinstance(default, bool) else str(default)
    return f"{text} (default: {words})"
