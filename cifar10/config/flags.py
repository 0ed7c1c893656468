"""Parses the command line into a TrainConfig, with the files that it names."""

import re
from collections.abc import Sequence
from typing import Any, Optional

from cifar10.config import recipes, settings_file
from cifar10.config.fields import FIELDS, KINDS
from cifar10.config.parser import GIVEN, Parser, make_parser
from cifar10.config.train_config import TrainConfig
from cifar10.config.values import BOOLEANS, hint
from cifar10.errors import ConfigError
from cifar10.settings import flag_name
from cifar10_program.common_flags import arguments_of


def parse(argv: Sequence[str]) -> TrainConfig:
    """Parses the command line: flags beat --config, which beats the recipe, which beats defaults.

    Args:
      argv: arguments after the program's name; `--data-dir` and `--data_dir` are the same.

    Returns:
      A validated TrainConfig.

    Raises:
      ConfigError: a flag is unknown, a value has the wrong type or is not allowed, flags contradict
        each other, or a file of settings is wrong.
    """
    parser = make_parser()
    # All words after `--` are files; argparse would take some of them for flags.
    end = argv.index("--") if "--" in argv else len(argv)
    words = _normalise(argv[:end])
    _refuse_unknown(words, parser)
    values = vars(parser.parse_intermixed_args(words))
    given: dict[str, Any] = {name: value for name, (_, value) in values.pop(GIVEN, {}).items()}
    path = values.pop("config")
    given.pop("config", None)
    file = None if path is None else settings_file.read(path, "--config")
    if file is not None:
        values.update(_of_file(file, given))
    _apply_recipe(values, given, file)
    values["images"] = (*values["images"], *argv[end + 1 :])
    return TrainConfig(**values).with_given(given)


def _of_file(file: settings_file.SettingsFile, given: dict[str, Any]) -> dict[str, Any]:
    """Returns the settings of --config that the flags leave; adds those to `given`.

    Raises:
      ConfigError: a flag names a recipe, which a result could only contradict.
    """
    if file.is_result and "recipe" in given:
        raise ConfigError(
            f"--recipe {given['recipe']} does not go with {file.name}, the result of a run, which "
            "has every setting; leave one of them out"
        )
    found = recipes.under(file.settings, given)
    given.update((name, value) for name, value in found.items() if name in file.given)
    return found


def _apply_recipe(
    values: dict[str, Any], given: dict[str, Any], file: Optional[settings_file.SettingsFile]
) -> None:
    """Adds the settings of the recipe; a result has them already."""
    if values["recipe"] is not None and not (file is not None and file.is_result):
        values["recipe"], recipe = recipes.find(values["recipe"], "--recipe")
        values.update(recipes.under(recipe.settings, given))


def _refuse_unknown(words: Sequence[str], parser: Parser) -> None:
    known = {name for argument in arguments_of(parser) for name in argument.option_strings}
    for word in words:
        name = word.partition("=")[0]
        if re.match("--|-[A-Za-z]", name) and name not in known:
            names = [one[2:] for one in known if one.startswith("--")]
            way_out = hint(name.lstrip("-"), names, "--{}".format) or "; --help-all lists all flags"
            raise ConfigError(f"there is no flag {word}{way_out}")


def _normalise(argv: Sequence[str]) -> list[str]:
    """Spells flags with dashes and adds the value of each boolean flag that has none.

    `--data_dir x` becomes `--data-dir x`. `--verbose cat.png` becomes `--verbose=true cat.png`: the
    word after a boolean flag is its value only if it is a spelling of true or false.
    """
    booleans = {flag_name(name) for name in FIELDS if KINDS[name] is bool}
    words = list(argv)
    result: list[str] = []
    while words:
        word = words.pop(0)
        if word.startswith("--"):
            name, equals, value = word.partition("=")
            name = name.replace("_", "-")
            if name in booleans and not equals:
                takes_next = bool(words) and words[0].lower() in BOOLEANS
                equals, value = "=", words.pop(0) if takes_next else "true"
            word = name + equals + value
        result.append(word)
    return result
