"""The command lines of benchmarks: flags of their own, then perhaps `--` and those of training."""

import argparse
import os
import re
from collections.abc import Sequence

from benchmarks.errors import BenchmarkError
from cifar10.config import flags
from cifar10.config.train_config import TrainConfig
from cifar10.settings import flag_name

# What a benchmark of clusters decides for each run.
_VARIED = (
    "mode",
    "images",
    "checkpoint",
    "work_dir",
    "sync",
    "replication",
    "replicas_to_aggregate",
    "ps_hosts",
    "worker_hosts",
    "job_name",
    "task_index",
)
TRAINING_ARGS = "TRAINING ARGS, after `--`, are those of cifar10_main.py."
_LINK = re.compile(r"([0-9]+(?:\.[0-9]+)?)([MG])bit")


def new_parser(name: str, description: str) -> argparse.ArgumentParser:
    """A parser of a benchmark's own words; its `--help` shows the module's docstring as it is."""
    return argparse.ArgumentParser(
        prog=f"python -m benchmarks {name}",
        description=description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )


def parse(parser: argparse.ArgumentParser, argv: Sequence[str]) -> argparse.Namespace:
    """Reads a command line; the training's flags become `config`.

    Raises:
      BenchmarkError: a flag sets what the benchmark varies.
      ConfigError: a flag of training is wrong.
    """
    parser.epilog = TRAINING_ARGS
    ours, theirs = split(argv)
    arguments = parser.parse_args(ours)
    arguments.config = training_config(theirs)
    return arguments


def split(argv: Sequence[str]) -> tuple[list[str], list[str]]:
    """A benchmark's own words, and those after `--`."""
    words = list(argv)
    place = words.index("--") if "--" in words else len(words)
    return words[:place], words[place + 1 :]


def training_config(words: Sequence[str]) -> TrainConfig:
    """The training's flags, without those that a benchmark varies; see `parse`."""
    config = flags.parse(words)
    for name in _VARIED:
        if config.is_set(name):
            raise BenchmarkError(
                f"{flag_name(name)} is what this benchmark decides for each run; leave it out"
            )
    return config


def data_flag(config: TrainConfig) -> str:
    """Returns its data folder as a flag whose path is absolute."""
    place = config.data_dir
    return f"--data-dir={place if '://' in place else os.path.abspath(place)}"


def bytes_per_sec(text: str) -> float:
    """`100Mbit` or `1Gbit` -> bytes a second.

    Raises:
      argparse.ArgumentTypeError: it is neither.
    """
    match = _LINK.fullmatch(text)
    if not match or not float(match[1]):
        raise argparse.ArgumentTypeError(f"must be such as 100Mbit or 10Gbit, got {text!r}")
    return float(match[1]) * {"M": 1e6, "G": 1e9}[match[2]] / 8


def at_least_one(text: str) -> int:
    """A whole number from 1 on.

    Raises:
      argparse.ArgumentTypeError: it is not.
    """
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"must be a whole number from 1 on, got {text!r}")
    return int(text)


def positive(text: str) -> float:
    """A number above 0.

    Raises:
      argparse.ArgumentTypeError: it is not.
    """
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < 1e6:
        raise argparse.ArgumentTypeError(f"must be a number above 0, got {text!r}")
    return value
