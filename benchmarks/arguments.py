"""Command lines of benchmarks: a benchmark's own flags, then optionally `--` and training flags."""

import argparse
import dataclasses
import os
import pathlib
import re
import sys
from collections.abc import Collection, Sequence
from typing import Any, Optional

from cifar10.config import flags
from cifar10.config.settings import flag_name
from cifar10.config.train_config import TrainConfig

# Settings that a benchmark chooses itself for each run, so the user must not set them.
_VARIED = (
    *("mode", "images", "checkpoint", "work_dir", "sync", "replication", "replicas_to_aggregate"),
    *("ps_hosts", "worker_hosts", "job_name", "task_index"),
)
TRAINING_ARGS = "TRAINING ARGS, after `--`, are those of cifar10_main.py."
_LINK = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,6})?)([MG])bit")


class BenchmarkError(Exception):
    """Ends a benchmark with a line that gives the value, the rule and a hint."""


class _Parser(argparse.ArgumentParser):
    """Refuses empty values, which an unset variable of a shell script gives."""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        for word in sys.argv[1:] if args is None else args:
            if not word or (word.startswith("--") and word.endswith("=")):
                self.error(f"{word.rstrip('=') or 'an argument'} must not be empty; leave it out")
        return super().parse_known_args(args, namespace)


def new_parser(
    name: str,
    description: str,
    *,
    rounds: Optional[int] = None,
    seconds: Optional[float] = None,
    writes: bool = False,
    reads: bool = False,
) -> argparse.ArgumentParser:
    """Returns a parser for a benchmark's own flags.

    Args:
      name: the benchmark's name.
      description: what `--help` shows, unwrapped.
      rounds: default of --rounds; None: there is no such flag, as of the others.
      seconds: default of --seconds.
      writes: whether there is --out, for a results file.
      reads: whether there is --data-dir.
    """
    program, raw = f"python -m benchmarks {name}", argparse.RawDescriptionHelpFormatter
    parser = _Parser(prog=program, description=description, formatter_class=raw)
    if rounds is not None:
        parser.add_argument("--rounds", type=at_least_one, default=rounds, help=f"({rounds})")
    if seconds is not None:
        text = f"of each run ({seconds:g})"
        parser.add_argument("--seconds", type=positive, default=seconds, help=text)
    if writes:
        parser.add_argument("--out", type=pathlib.Path, metavar="FILE", help="a results file")
    if reads:
        parser.add_argument("--data-dir", default="data", help="a folder of TFRecords (data)")
    return parser


def parse(
    parser: argparse.ArgumentParser, argv: Sequence[str], varied: Sequence[str] = ()
) -> argparse.Namespace:
    """Parses a command line.

    Args:
      parser: parser of the benchmark's own flags.
      argv: the command line.
      varied: further settings that the benchmark chooses for each run.

    Returns:
      The benchmark's own arguments, with the training flags as `training` and parsed as `config`.

    Raises:
      BenchmarkError: a training flag sets what the benchmark chooses for each run.
      ConfigError: a training flag is invalid.
    """
    parser.epilog = TRAINING_ARGS
    words = list(argv)
    end = words.index("--") if "--" in words else len(words)
    arguments = parser.parse_args(words[:end])
    arguments.training = words[end + 1 :]
    arguments.config = training_config(arguments.training, varied)
    return arguments


def training_config(words: Sequence[str], varied: Sequence[str] = ()) -> TrainConfig:
    """Parses training flags; raises what `parse` does."""
    config = flags.parse(words)
    for name in (*_VARIED, *varied):
        if config.is_set(name):
            rule = "is what this benchmark decides for each run; leave it out"
            raise BenchmarkError(f"{flag_name(name)} {rule}")
    return config


def words_of(config: TrainConfig, leave_out: Collection[str] = ()) -> list[str]:
    """Returns the flags that give the settings of `config` but those named in `leave_out`.

    A recipe is not among them: its settings are, and its file may be gone or elsewhere.
    """
    return [
        f"{flag_name(field.name)}={getattr(config, field.name)}"
        for field in dataclasses.fields(config)
        if field.name not in {*leave_out, "recipe"} and config.is_set(field.name)
    ]


def data_flag(data_dir: str) -> str:
    """Returns the `--data-dir` flag; a local path is made absolute."""
    return f"--data-dir={data_dir if '://' in data_dir else os.path.abspath(data_dir)}"


def bytes_per_sec(text: str) -> float:
    """Converts a link speed such as `100Mbit` or `1Gbit` to bytes per second.

    Raises:
      argparse.ArgumentTypeError: the text has another form, or the speed is 0.
    """
    match = _LINK.fullmatch(text)
    if not match or not float(match[1]):
        raise argparse.ArgumentTypeError(f"must be such as 100Mbit or 10Gbit, got {text!r}")
    return float(match[1]) * {"M": 1e6, "G": 1e9}[match[2]] / 8


def at_least_one(text: str) -> int:
    """Converts text to a whole number of at least 1, or raises argparse.ArgumentTypeError."""
    if not re.fullmatch("[0-9]{1,9}", text) or int(text) < 1:
        raise argparse.ArgumentTypeError(f"must be a whole number from 1 on, got {text!r}")
    return int(text)


def positive(text: str) -> float:
    """Converts text to a number above 0, below 1,000,000, or raises argparse.ArgumentTypeError."""
    if not re.fullmatch(r"[0-9]{0,6}(\.[0-9]{1,6})?", text) or not text or not float(text):
        raise argparse.ArgumentTypeError(f"must be a number above 0, got {text!r}")
    return float(text)
