"""The flags `--version` and `--print-completion`, which every program has."""

import argparse
import sys
from collections.abc import Callable, Iterator
from typing import Any, NoReturn, Optional

from cifar10_program import VERSION_LINE
from cifar10_program.streams import discard

SHELLS = ("bash", "zsh", "tcsh", "fish")
BOOLEAN = "true|false"  # Metavariable of a flag that also works without a value.


def add_common(
    parser: argparse.ArgumentParser,
    command: str,
    whole: Optional[Callable[[], argparse.ArgumentParser]] = None,
) -> None:
    """Adds `--version` and `--print-completion`.

    Args:
      parser: the parser of the command line.
      command: TRAIN, DATA or LAUNCH.
      whole: a function that makes a parser which shows every flag and subcommand; None if `parser`
        does.
    """
    parser.add_argument(
        "--version", action="version", version=VERSION_LINE, help="print the version, and end"
    )
    parser.add_argument(
        "--print-completion",
        action=_PrintCompletion,
        choices=SHELLS,
        const=command,
        whole=whole or (lambda: parser),
        default=argparse.SUPPRESS,
        help=f"print the completion of {command} for a shell, and end",
    )


class _PrintCompletion(argparse.Action):
    """Prints a script with which a shell completes the command `const`, then ends the program."""

    def __init__(self, whole: Callable[[], argparse.ArgumentParser], **more: Any) -> None:
        super().__init__(**more)
        self._whole = whole

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: Optional[str] = None,
    ) -> NoReturn:
        import shtab  # Imported here, since no other run needs it.

        parser = self._whole()
        # These attributes are shtab's interface for what argparse does not describe.
        places = {"DIR": shtab.DIRECTORY, "FILE": shtab.FILE, "PATH": shtab.FILE}
        for action in arguments_of(parser):
            if hasattr(action, "words"):
                action.choices = action.words
            elif action.metavar in places:
                action.complete = places[action.metavar]  # type: ignore[attr-defined,index]
            elif action.metavar == BOOLEAN:
                action.choices = BOOLEAN.split("|")
        parser.prog = str(self.const)
        try:
            print(shtab.complete(parser, values), flush=True)
        except BrokenPipeError:  # The reader, such as `head`, has ended.
            discard(sys.stdout)
        raise SystemExit(0)


def arguments_of(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    """Yields the arguments of a parser and of its subcommands."""
    for action in parser._actions:
        yield action
        if isinstance(action, argparse._SubParsersAction):
            for below in action.choices.values():
                yield from arguments_of(below)
