"""Parses the command line into a TrainConfig. Standard library only."""

import argparse
import dataclasses
import typing
from collections.abc import Sequence
from typing import Any, NoReturn, Optional

from cifar10.config import recipes
from cifar10.config.train_config import TrainConfig
from cifar10.errors import ConfigError
from cifar10.settings import flag_name, flag_of

_GIVEN = "_given"  # Attribute of the namespace: (flag as written, value) of each flag given.
# The headings of --help, in order.
GROUPS = ("job", "places", "model", "training", "devices", "cluster", "reporting")
_TRUE, _FALSE = ("true", "t", "yes", "y", "1"), ("false", "f", "no", "n", "0")

# Removed flags, and what to do instead.
_GONE = {
    "--autotune": "python -m benchmarks towers measures towers and threads, and prints the flags "
    "to set",
    "--resident-data": "the training images are in the host's memory; leave it out",
    "--worker-delay-secs": "the warm-up keeps the first updates small; leave it out",
}

DESCRIPTION = """\
Train CIFAR-10 with tf.estimator, evaluate, predict, export.

  python cifar10_main.py --train-batch-size=16          train, validate, evaluate, export
  python cifar10_main.py --mode evaluate                the best checkpoint on the eval split
  python cifar10_main.py --mode predict cat.png dog.jpg what the best checkpoint sees
  python cifar10_main.py --mode export                  a SavedModel
  python cifar10_main.py --recipe fast                  a good model in ten epochs

Every flag may be written with dashes or underscores."""


class _Parser(argparse.ArgumentParser):
    """Raises ConfigError instead of printing the usage, so that an error is one line."""

    def error(self, message: str) -> NoReturn:
        raise ConfigError(f"{message} (see --help)")


class _StoreOnce(argparse.Action):
    """Refuses a flag that is given twice with different values, even under different names."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: Optional[str] = None,
    ) -> None:
        given = namespace.__dict__.setdefault(_GIVEN, {})
        name, value = given.setdefault(self.dest, (option_string, values))
        if str(value) != str(values):  # NaN, which the checks refuse, does not equal itself.
            raise ConfigError(
                f"{name} {value} and {option_string} {values} contradict each other; give one"
            )
        setattr(namespace, self.dest, values)


class _PrintRecipe(argparse.Action):
    """Prints one recipe or all recipes, then exits as --help does."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: Optional[str] = None,
    ) -> NoReturn:
        names = [values] if values else list(recipes.RECIPES)
        print("\n\n".join(map(recipes.describe, names)))
        parser.exit()


def parse(argv: Sequence[str]) -> TrainConfig:
    """Parses the command line; flags override the recipe, and the recipe overrides defaults.

    Args:
      argv: arguments after the program's name; `--data-dir` and `--data_dir` are the same.

    Returns:
      A validated TrainConfig.

    Raises:
      ConfigError: a flag is unknown, a value has the wrong type or is not allowed, or flags
        contradict each other.
    """
    parser = _make_parser()
    # All words after `--` are files; argparse would take some of them for flags.
    end = argv.index("--") if "--" in argv else len(argv)
    _refuse_gone(argv[:end])
    values = vars(parser.parse_intermixed_args(_normalise(argv[:end])))
    given = values.pop(_GIVEN, {})
    if values["recipe"] is not None:
        flags = {name: value for name, (_, value) in given.items()}
        values.update(recipes.settings(values["recipe"], flags))
    values["images"] = (*values["images"], *argv[end + 1 :])
    return TrainConfig(**values).with_given(given)


def _refuse_gone(argv: Sequence[str]) -> None:
    for word in argv:
        name = word.partition("=")[0].replace("_", "-")
        if name in _GONE:
            raise ConfigError(f"{name} is gone: {_GONE[name]}")


def _make_parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="cifar10_main.py",
        description=DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument(
        "--print-recipe",
        action=_PrintRecipe,
        nargs="?",
        choices=list(recipes.RECIPES),
        default=argparse.SUPPRESS,
        help="print the settings of a recipe (default: of all recipes), and end",
    )
    types = typing.get_type_hints(TrainConfig)
    groups = {group: parser.add_argument_group(group) for group in GROUPS}
    for field in dataclasses.fields(TrainConfig):
        flag = flag_of(field)
        if field.name == "images":
            groups[flag.group].add_argument("images", nargs="*", metavar="IMAGE", help=flag.help)
            continue
        names = [flag_name(field.name), *("--" + alias for alias in flag.aliases)]
        kind = _value_type(types[field.name])
        groups[flag.group].add_argument(
            *names,
            action=_StoreOnce,
            dest=field.name,
            type=_parse_bool if kind is bool else kind,
            default=field.default,
            choices=flag.choices or None,
            metavar=None if flag.choices else kind.__name__.upper(),
            help=flag.help if field.default is None else f"{flag.help} (default: {field.default})",
        )
    return parser


def _value_type(annotation: Any) -> Any:
    """Returns the type of a setting's values: int for `Optional[int]`."""
    arguments = [a for a in typing.get_args(annotation) if a is not type(None)]
    return arguments[0] if arguments else annotation


def _parse_bool(text: str) -> bool:
    if text.lower() in _TRUE:
        return True
    if text.lower() in _FALSE:
        return False
    raise argparse.ArgumentTypeError(f"must be true or false, got {text!r}")


def _normalise(argv: Sequence[str]) -> list[str]:
    """Spells flags with dashes and adds the value of each boolean flag that has none.

    `--data_dir x` becomes `--data-dir x`. `--verbose cat.png` becomes `--verbose=true cat.png`: the
    word after a boolean flag is its value only if it is a spelling of true or false.
    """
    types = typing.get_type_hints(TrainConfig)
    booleans = {flag_name(name) for name, kind in types.items() if _value_type(kind) is bool}
    words = list(argv)
    result: list[str] = []
    while words:
        word = words.pop(0)
        if word.startswith("--"):
            name, equals, value = word.partition("=")
            name = name.replace("_", "-")
            if name in booleans and not equals:
                takes_next = bool(words) and words[0].lower() in _TRUE + _FALSE
                equals, value = "=", words.pop(0) if takes_next else "true"
            word = name + equals + value
        result.append(word)
    return result
