"""Makes the parser of the command line, and what --help shows, from the settings."""

import argparse
import functools
from collections.abc import Mapping
from typing import Any, NoReturn

from cifar10.config import settings_file
from cifar10.config.fields import GROUPS, REGISTRIES
from cifar10.config.settings import Setting, flag_name, shown
from cifar10.errors import ConfigError
from cifar10_program import TRAIN, started_as
from cifar10_program.common_flags import BOOLEAN, add_common

_DESCRIPTION = """\
Train CIFAR-10 with tf.estimator, evaluate, predict, export.

  {0} --train-batch-size=16          train, validate, evaluate, export
  {0} --mode evaluate                the best checkpoint on the eval split
  {0} --mode predict cat.png photos/ what the best checkpoint sees
  {0} --mode export                  a SavedModel
  {0} --recipe fast                  a good model in ten epochs
  {0} --config output/result.json --output-dir again    the same run again

Every flag may be written with dashes or underscores; [true|false]: alone, the flag means true."""

_HelpFormatter = functools.partial(argparse.RawDescriptionHelpFormatter, max_help_position=30)
_TYPES = {int: "INT", float: "FLOAT", str: "TEXT", bool: BOOLEAN}


class _Parser(argparse.ArgumentParser):
    """Raises ConfigError instead of printing the usage, so that an error is one line."""

    def error(self, message: str) -> NoReturn:
        raise ConfigError(f"{message} (see --help)")


class _PrintRecipe(argparse.Action):
    """Prints the file of a recipe, then exits as --help does."""

    def __call__(self, parser: Any, namespace: Any, name: Any, option_string: Any = None) -> None:
        print(settings_file.recipe_file(name).read_text(encoding="utf-8").rstrip())
        parser.exit()


def make_parser(settings: Mapping[str, Setting], whole: bool = False) -> argparse.ArgumentParser:
    """Returns the parser, which appends the text of a flag to the list of its setting.

    Args:
      settings: what the flags set, by name.
      whole: whether its help shows every flag, and not only those that people use most.
    """
    program = started_as(TRAIN)
    parser = _Parser(
        prog=program,
        usage=f"{program} [flags] [FILE ...]",
        description=_DESCRIPTION.format(program),
        formatter_class=_HelpFormatter,
        argument_default=argparse.SUPPRESS,
        allow_abbrev=False,
    )
    parser.add_argument("--help-all", action="help", help="show every flag")
    add_common(parser, TRAIN, lambda: make_parser(settings, whole=True))
    text, recipes = "print the file of a recipe, and end", settings_file.recipe_names()
    parser.add_argument("--print-recipe", action=_PrintRecipe, choices=recipes, help=text)
    names = dict.fromkeys((*GROUPS, *(setting.group for setting in settings.values())))
    groups = {name: parser.add_argument_group(name) for name in names}
    registries = REGISTRIES.values()
    # Those of a model or an optimizer come last.
    for name in sorted(settings, key=lambda name: any(found.owners(name) for found in registries)):
        setting, group = settings[name], groups[settings[name].group]
        text = setting.help
        if setting.default not in (None, ()):
            text += f" (default: {shown(setting.default)})"
        if not (whole or setting.common):
            text = argparse.SUPPRESS
        if name == "images":
            group.add_argument(name, nargs="*", metavar=setting.metavar, help=text)
            continue
        choices = f"{{{','.join(setting.choices)}}}" if setting.choices else ""
        flags = [flag_name(name), *("--" + alias for alias in setting.aliases)]
        nargs = "?" if setting.kind is bool else None
        metavar = choices or setting.metavar or _TYPES[setting.kind]
        action = group.add_argument(
            *flags, action="append", dest=name, nargs=nargs, metavar=metavar, help=text
        )
        if choices:
            action.words = tuple(setting.choices)  # type: ignore[attr-defined] # for completion
    return parser
