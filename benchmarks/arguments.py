"""Command lines of benchmarks: a benchmark's own flags, then optionally `--` and training flags."""

import argparse
import os
import re
import sys
from collections.abc import Sequence
from typing import Any

from benchmarks.errors import BenchmarkError
from cifar10.config import flags
from cifar10.config.train_config import TrainConfig
from cifar10.settings import flag_name

# Settings that a benchmark chooses itself for each run, so the user must not set them.
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


class _Parser(argparse.ArgumentParser):
    """Refuses empty values, which an unset variable of a shell script gives."""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        for word in sys.argv[1:] if args is None else args:
            if not word or (word.startswith("--") and word.endswith("=")):
                self.error(f"{word.rstrip('=') or 'an argument'} must not be empty; leave it out")
        return super().parse_known_args(args, namespace)


def new_parser(name: str, description: str) -> argparse.ArgumentParser:
    """Returns a parser for a benchmark's own flags; `--help` shows `description` unwrapped."""
    return _Parser(
        prog=f"python -m benchmarks {name}",
        description=description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )


def parse(parser: argparse.ArgumentParser, argv: Sequence[str]) -> argparse.Namespace:
    """Parses a command line.

    Returns:
      The benchmark's own arguments, with the parsed training flags as `config`.

    Raises:
      BenchmarkError: a training flag sets what the benchmark chooses for each run.
      ConfigError: a training flag is invalid.
    """
    parser.epilog = TRAINING_ARGS
    ours, theirs = split(argv)
    arguments = parser.parse_args(ours)
    arguments.config = training_config(theirs)
    return arguments


def parse_training_flags(name: str, description: str, argv: Sequence[str]) -> TrainConfig:
    """Parses the command line of a benchmark that takes the flags of cifar10_main.py alone.

    Raises:
      ConfigError: a flag is invalid.
    """
    if {"-h", "--help"} & set(argv):
        parser = new_parser(name, description)
        parser.usage = f"{parser.prog} [flags of cifar10_main.py]"
        parser.parse_args(["--help"])
    return flags.parse(argv)


def split(argv: Sequence[str]) -> tuple[list[str], list[str]]:
    """Splits a command line into the arguments before `--` and those after it."""
    words = list(argv)
    place = words.index("--") if "--" in words else len(words)
    return words[:place], words[place + 1 :]


def training_config(words: Sequence[str]) -> TrainConfig:
    """Parses training flags.

    Raises:
      BenchmarkError: a flag sets what the benchmark chooses for each run.
      ConfigError: a flag is invalid.
    """
    config = flags.parse(words)
    for name in _VARIED:
        if config.is_set(name):
            raise BenchmarkError(
                f"{flag_name(name)} is what this benchmark decides for each run; leave it out"
            )
    return config


def data_flag(config: TrainConfig) -> str:
    """Returns the `--data-dir` flag of a configuration; a local path is made absolute."""
    place = config.data_dir
    return f"--data-dir={place if '://' in place else os.path.abspath(place)}"


def bytes_per_sec(text: str) -> float:
    """Converts a link speed such as `100Mbit` or `1Gbit` to bytes per second.

    Raises:
      argparse.ArgumentTypeError: the text has another form, or the speed is 0.
    """
    match = _LINK.fullmatch(text)
    if not match or len(match[1]) > 15 or not float(match[1]):
        raise argparse.ArgumentTypeError(f"must be such as 100Mbit or 10Gbit, got {text!r}")
    return float(match[1]) * {"M": 1e6, "G": 1e9}[match[2]] / 8


def at_least_one(text: str) -> int:
    """Converts text to a whole number of at least 1.

    Raises:
      argparse.ArgumentTypeError: the text is not such a number.
    """
    if not re.fullmatch("[0-9]{1,9}", text) or int(text) < 1:
        raise argparse.ArgumentTypeError(f"must be a whole number from 1 on, got {text!r}")
    return int(text)


def positive(text: str) -> float:
    """Converts text to a number above 0 and below 1,000,000.

    Raises:
      argparse.ArgumentTypeError: the text is not such a number.
    """
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < 1e6:
        raise argparse.ArgumentTypeError(f"must be a number above 0, got {text!r}")
    return value
