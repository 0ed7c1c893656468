"""Parses the command line into a TrainConfig: flags beat --config, which beats the recipe."""

import argparse
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from cifar10.config import settings_file
from cifar10.config.checks import why_pointless
from cifar10.config.hints import hint
from cifar10.config.parser import make_parser
from cifar10.config.train_config import TrainConfig
from cifar10.errors import ConfigError
from cifar10.settings import BOOLEANS, Setting, settings_of
from cifar10_program.common_flags import arguments_of

_Values = Mapping[str, Any]
_Known = Mapping[str, Setting]
_CONFIG_HELP = "settings in YAML or JSON, such as result.json of another run; flags beat them"
_CONFIG = Setting(_CONFIG_HELP, None, "job", common=True, metavar="FILE", name="config")


def parse(argv: Sequence[str], config_type: type[TrainConfig] = TrainConfig) -> TrainConfig:
    """Parses the command line.

    The settings of --config and of --recipe count as flags in front of the others, but one that
    another setting on the command line replaces or makes pointless is left out.

    Args:
      argv: arguments after the program's name; `--data-dir` and `--data_dir` are the same.
      config_type: the class of the configuration, which may have more settings.

    Raises:
      ConfigError: a flag is unknown, a value has the wrong type or is not allowed, flags contradict
        each other, or a file of settings is wrong.
    """
    known = settings_of(config_type)
    # All words after `--` are files; argparse would take some of them for flags.
    end = argv.index("--") if "--" in argv else len(argv)
    parser = make_parser({"config": _CONFIG, **known})
    found, unknown = parser.parse_known_intermixed_args(_spelt(argv[:end], known))
    if unknown:
        _refuse_unknown(unknown, parser)
    texts = vars(found)
    images = (*(texts.pop("images", None) or ()), *argv[end + 1 :])
    given = _read(texts, {"config": _CONFIG, **known})
    source, is_result = given.pop("config", None), False
    values = dict(given)
    if source is not None:
        file, is_result = settings_file.read(source, "--config", known)
        if is_result and "recipe" in given:
            raise ConfigError(
                f"--recipe {given['recipe']} does not go with {source}, the result of a run, which "
                "has every setting; leave one of them out"
            )
        left = _left(file, given, known, is_result)
        values.update(left)
        if is_result:
            left = {name: value for name, value in left.items() if value != known[name].default}
        given.update(left)
    if values.get("recipe") is not None and not is_result:
        path = str(settings_file.recipe_file(values["recipe"]))
        recipe, _ = settings_file.read(path, "--recipe", known)
        values = {**_left(recipe, given, known), **values}
    return config_type(**{**values, "images": images}, given=given)


def _spelt(argv: Sequence[str], known: _Known) -> list[str]:
    """Spells flags with dashes and adds the value of each boolean flag that has none.

    `--data_dir x` becomes `--data-dir x`. `--verbose cat.png` becomes `--verbose=true cat.png`: the
    word after a boolean flag is its value only if it is a spelling of true or false.
    """
    booleans = {one.flag for one in known.values() if one.kind is bool}
    result = []
    for word, following in zip(argv, [*argv[1:], ""]):
        name, equals, value = word.partition("=")
        if word.startswith("--"):
            name = name.replace("_", "-")
            if name in booleans and not equals and following.lower() not in BOOLEANS:
                equals, value = "=", "true"
        result.append(name + equals + value)
    return result


def _read(texts: Mapping[str, Sequence[str]], known: _Known) -> dict[str, Any]:
    """Returns the values of the flags by setting.

    Raises:
      ConfigError: a value is wrong, or a setting has two.
    """
    found: dict[str, Any] = {}
    for name, words in texts.items():
        first, *others = (known[name].read(text, known[name].flag) for text in words)
        for other in others:
            if other != first:
                flag = known[name].flag
                raise ConfigError(
                    f"{flag} {first} and {flag} {other} contradict each other; give one"
                )
        found[name] = first
    return found


def _left(settings: _Values, given: _Values, known: _Known, is_whole: bool = False) -> _Values:
    """Returns the settings of a recipe or a file that those given before leave in force.

    What replaces a setting, makes it pointless or changes the choice that it fits removes it.

    Args:
      settings: values of the settings of the recipe or the file, by name.
      given: values of the settings that beat them, by name.
      known: all settings by name.
      is_whole: whether the file has every setting, so that some of its own are pointless, too.
    """
    left, others = dict(settings), {**(settings if is_whole else {}), **given}

    def gives_way(name: str) -> bool:
        one, now = known[name], {**settings, **others}
        return (
            not given.keys().isdisjoint((name, *one.excludes))
            or why_pointless(one, settings[name], others) is not None
            or any(
                choice in settings and key(settings[choice]) != key(now[choice])
                for choice, key in one.fits.items()
            )
        )

    while gone := list(filter(gives_way, left)):
        for name in gone:
            del left[name]
            others[name] = given.get(name, known[name].default)  # What needs it goes, too.
    return left


def _refuse_unknown(words: Sequence[str], parser: argparse.ArgumentParser) -> NoReturn:
    word = next((one for one in words if one.startswith("-")), words[0])
    names = [one[2:] for argument in arguments_of(parser) for one in argument.option_strings]
    meant = hint(word.partition("=")[0].lstrip("-"), names, "--{}".format)
    raise ConfigError(f"there is no flag {word}{meant or '; --help-all lists all flags'}")
