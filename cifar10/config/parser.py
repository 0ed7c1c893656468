"""Makes the parser of the command line from the settings. Standard library only."""

import argparse
import functools
from typing import Any, Callable, NoReturn, Optional

from cifar10.config import help as help_text
from cifar10.config import recipes
from cifar10.config.fields import FIELDS, KINDS
from cifar10.config.values import read_value
from cifar10.errors import ConfigError
from cifar10.settings import flag_name, flag_of
from cifar10_program import TRAIN, started_as
from cifar10_program.common_flags import add_common

GIVEN = "_given"  # Attribute of the namespace: (flag as written, value) of each flag given.


class Parser(argparse.ArgumentParser):
    """Raises ConfigError instead of printing the usage, so that an error is one line."""

    def error(self, message: str) -> NoReturn:
        """Refuses the command line."""
        raise ConfigError(f"{message} (see --help)")


class _StoreOnce(argparse.Action):
    """Reads a value; refuses a flag that is given twice with different values, under any names.

    Args:
      read: function that returns the value that a text stands for; takes the flag's name, too.
      **more: what argparse gives every action.
    """

    def __init__(self, read: Callable[[str, str], Any], **more: Any) -> None:
        super().__init__(**more)
        self._read = read

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: Optional[str] = None,
    ) -> None:
        given = namespace.__dict__.setdefault(GIVEN, {})
        found = self._read(values, str(option_string))
        name, value = given.setdefault(self.dest, (option_string, found))
        if value != found:
            raise ConfigError(
                f"{name} {value} and {option_string} {found} contradict each other; give one"
            )
        setattr(namespace, self.dest, found)


class _Print(argparse.Action):
    """Prints a text, then exits as --help does.

    Args:
      text: function that returns it; takes the flag's value, None if it has none.
      **more: what argparse gives every action.
    """

    def __init__(self, text: Callable[[Any], str], **more: Any) -> None:
        super().__init__(**more)
        self._text = text

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: Optional[str] = None,
    ) -> NoReturn:
        """Prints the text."""
        print(self._text(values).rstrip())
        parser.exit()


def _recipes(name: Optional[str]) -> str:
    found = [recipes.find(one, "--print-recipe") for one in ([name] if name else recipes.RECIPES)]
    return "\n\n".join(recipes.describe(*one) for one in found)


def make_parser(shows_all: bool = False) -> Parser:
    """Returns the parser, which reads every flag.

    Args:
      shows_all: whether its help shows every flag, and not only those that people use most.
    """
    program = started_as(TRAIN)
    parser = Parser(
        prog=program,
        usage=f"{program} [flags] [FILE ...]",
        description=help_text.description(),
        formatter_class=functools.partial(
            argparse.RawDescriptionHelpFormatter, max_help_position=30
        ),
        allow_abbrev=False,
    )
    parser.add_argument(
        "--help-all",
        action=_Print,
        text=lambda _: make_parser(shows_all=True).format_help(),
        nargs=0,
        default=argparse.SUPPRESS,
        help="show every flag",
    )
    add_common(parser, TRAIN, lambda: make_parser(shows_all=True))
    parser.add_argument(
        "--print-recipe",
        action=_Print,
        text=_recipes,
        nargs="?",
        metavar="NAME|FILE",
        default=argparse.SUPPRESS,
        help="print the settings of a recipe (default: of all recipes), and end",
    )
    groups = {group: parser.add_argument_group(group) for group in help_text.GROUPS}
    groups["job"].add_argument(
        "--config",
        action=_StoreOnce,
        read=lambda text, _: text,
        metavar="FILE",
        help="settings in YAML or JSON, such as result.json of another run; flags beat them",
    )
    for name in FIELDS:
        _add(groups[flag_of(FIELDS[name]).group], name, shows_all or name in help_text.COMMON)
    return parser


def _add(group: "argparse._ArgumentGroup", name: str, is_shown: bool) -> None:
    """Adds the flag of a setting."""
    field, flag = FIELDS[name], flag_of(FIELDS[name])
    text = help_text.with_default(flag.help, field) if is_shown else argparse.SUPPRESS
    if name == "images":
        group.add_argument("images", nargs="*", metavar="FILE", help=text)
        return
    action = group.add_argument(
        flag_name(name),
        *("--" + alias for alias in flag.aliases),
        action=_StoreOnce,
        read=functools.partial(read_value, name),
        dest=name,
        nargs="?" if KINDS[name] is bool else None,
        default=field.default,
        metavar=help_text.metavar(name),
        help=text,
    )
    words = recipes.RECIPES if name == "recipe" else flag.choices
    if words:
        action.words = tuple(words)  # type: ignore[attr-defined] # for completion
