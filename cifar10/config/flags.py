"""Parses the command line into a TrainConfig: flags beat --config, which beats the recipe."""

import argparse
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Callable, NoReturn

from cifar10.config import settings_file
from cifar10.config.checks import why_pointless
from cifar10.config.parser import make_parser
from cifar10.config.settings import BOOLEANS, Setting, nearest, settings_of
from cifar10.config.train_config import TrainConfig
from cifar10.errors import ConfigError
from cifar10_program.common_flags import arguments_of

_Values = Mapping[str, Any]
_Known = Mapping[str, Setting]
_CONFIG_HELP = "settings in YAML or JSON, such as result.json of another run; flags beat them"
_CONFIG = Setting(_CONFIG_HELP, None, "job", common=True, metavar="FILE", name="config")

# The flags of other programs -> ours, or what to do instead. The nearest flag answers for the rest.
_MEANT = {
    "b batch batch-size": "train-batch-size",
    "iterations max-steps num-batches num-steps steps": "train-steps",
    "base-lr init-lr lr": "learning-rate",
    "wd": "weight-decay",
    "checkpoint-dir model-dir save-dir train-dir": "output-dir",
    "display-every log-interval print-freq": "log-steps",
    "amp bf16 mixed-precision": "precision bf16",
    "fp16 use-fp16": "precision fp16",
    "eval evaluate test": "mode evaluate",
    "variable-update": "replication",
    "local-parameter-device": "variable-strategy",
    "load restore resume": "the same command continues from the last checkpoint",
    "j workers": "reading needs no workers; TF_CONFIG or --worker-hosts list the tasks that train",
    "chief-hosts master-hosts": "the chief is the first of --worker-hosts",
    "device gpu": "CUDA_VISIBLE_DEVICES chooses GPUs, and --num-gpus says how many",
}


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
        file, is_result = _read_file(source, "--config", known)
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
        recipe, _ = _read_file(path, "--recipe", known)
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


def _read_file(path: str, flag: str, known: _Known) -> tuple[dict[str, Any], bool]:
    """Returns the settings of a file by name, and whether it is the result of a run.

    Raises:
      ConfigError: the file cannot be read, or is wrong; the message names the place in it.
    """
    rows, is_result = settings_file.read(path, flag)
    names = {alias: name for name, one in known.items() for alias in (*one.aliases, one.flag[2:])}
    texts: dict[str, Any] = {}
    for place, key, text in rows:
        name = names.get(key.replace("_", "-"))
        if name is None and text is None and is_result:
            continue  # An earlier version had it.
        if name is None:
            meant = _hint(key.replace("_", "-"), names, lambda near: near.replace("-", "_"))
            settings_file.refuse(
                place, f"there is no setting {key}{meant or '; --help-all lists all settings'}"
            )
        if name in texts:
            settings_file.refuse(place, f"{key} is given twice; keep one")
        if name == "images" or not isinstance(text, (str, type(None))):
            rule = "must be on the command line" if name == "images" else "must be one value"
            settings_file.refuse(place, f"{key} {rule}")
        texts[name] = text if text is None else known[name].read(text, f"{place}: {key}")
    return {name: value for name, value in texts.items() if value is not None}, is_result


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
    meant = _hint(word.partition("=")[0].lstrip("-"), names, "--{}".format)
    raise ConfigError(f"there is no flag {word}{meant or '; --help-all lists all flags'}")


def _hint(word: str, known: Collection[str], spell: Callable[[str], str]) -> str:
    """Returns the end of the message about a name that no setting has; "" if nothing is similar.

    Args:
      word: the name, with dashes between its words and none in front.
      known: the names of all settings, spelt in the same way.
      spell: function that spells such a name as the user does.
    """
    for words, meant in _MEANT.items():
        if word in words.split():
            is_flag = meant.split()[0] in known
            return f"; did you mean {spell(meant)}?" if is_flag else f"; {meant}"
    return nearest(word, known, spell)
