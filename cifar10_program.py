"""What the three programs share: version, names, streams, paths, and completion in shells.

Standard library only. `cifar10`, `data_prep` and `launch` import this module, and it imports none
of them.
"""

import argparse
import atexit
import io
import os
import sys
from collections.abc import Callable, Iterator
from typing import Any, NoReturn, Optional, TextIO

# The only place of the version: pyproject.toml reads it from here.
VERSION = "0.1.0"
PACKAGE = "cifar10-estimator-pipeline"
VERSION_LINE = f"{PACKAGE} {VERSION}"

TRAIN, DATA, LAUNCH = "cifar10-train", "cifar10-data", "cifar10-launch"
# How people start the programs in a checkout, where those commands are not installed.
_IN_A_CHECKOUT = {
    TRAIN: "python cifar10_main.py",
    DATA: "python -m data_prep",
    LAUNCH: "python -m launch",
}
# Whether this is an installation (`pip install .`) and not a checkout, which alone has that file.
IS_INSTALLED = not os.path.exists(os.path.join(os.path.dirname(__file__), "cifar10_main.py"))
SHELLS = ("bash", "zsh", "tcsh", "fish")
BOOLEAN = "true|false"  # Metavariable of a flag that also works without a value.


def started_as(command: str) -> str:
    """Returns the words with which people start a program: its command or those of a checkout.

    A program names the others in the way that it was started itself.

    Args:
      command: TRAIN, DATA or LAUNCH.
    """
    by_command = os.path.basename(sys.argv[0]) in _IN_A_CHECKOUT
    return command if by_command or IS_INSTALLED else _IN_A_CHECKOUT[command]


def command_line() -> list[str]:
    """Returns the words of the command that runs in this process, for people to repeat."""
    program = os.path.basename(sys.argv[0])
    if program in _IN_A_CHECKOUT:
        return [program, *sys.argv[1:]]
    if program == "__main__.py":
        return ["python", "-m", os.path.basename(os.path.dirname(sys.argv[0])), *sys.argv[1:]]
    return ["python", *sys.argv]


def open_streams() -> None:
    """Makes the standard streams usable, however this process was started; each program calls it.

    A stream that was closed, as by `2>&-`, is opened on /dev/null: there is none in Python, and the
    next file that is opened would get its number, so that others print into it. Standard output
    shows what its encoding lacks as an escape. At the end of the process, a reader that has ended,
    such as `head`, is no error.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            # The lowest number that is free is the stream's, since those below it are open.
            number = os.open(os.devnull, os.O_RDWR)
            os.set_inheritable(number, True)
            # Like Python's own standard error, it takes any character.
            stream = os.fdopen(number, mode, errors="backslashreplace", closefd=False)
            setattr(sys, name, stream)
    if isinstance(sys.stdout, io.TextIOWrapper) and _may_refuse(sys.stdout):
        sys.stdout.reconfigure(errors="backslashreplace")
    atexit.unregister(_flush_at_exit)
    atexit.register(_flush_at_exit)


def _may_refuse(stream: io.TextIOWrapper) -> bool:
    """Returns whether a stream raises an error for some characters."""
    if stream.errors == "surrogateescape":
        # In the C locale, a stream is UTF-8 and writes the bytes of a file's name as they are.
        return stream.encoding.lower() != "utf-8"
    return stream.errors == "strict"


def _flush_at_exit() -> None:
    """Flushes the streams; Python would report readers that have ended, with exit code 120."""
    if not sys.stdout.closed:
        try:
            sys.stdout.flush()
        except BrokenPipeError:
            discard(sys.stdout)
    if not sys.stderr.closed:
        try:
            sys.stderr.flush()
        except OSError:
            discard(sys.stderr)


def discard(stream: TextIO) -> None:
    """Leads what is still printed on a stream, whose reader has ended, to /dev/null."""
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, stream.fileno())
    os.close(nothing)


def complain(line: str) -> None:
    """Prints a line on standard error.

    If it cannot be printed, as when the reader has ended, the exit code alone tells of the error.
    """
    try:
        print(line, file=sys.stderr, flush=True)
    except BrokenPipeError:
        discard(sys.stderr)
    except OSError:
        # The disk of a log may have room again for later lines.
        pass


def is_utf8(path: str) -> bool:
    """Returns whether a path is UTF-8; Python has surrogates in place of other bytes."""
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return True


def is_opened_as_utf8(path: str) -> bool:
    """Returns whether Python opens the same file as TensorFlow, whose paths are UTF-8.

    Python encodes a path as the locale says: in en_US.ISO-8859-1, only ASCII is the same in both.
    """
    try:
        return os.fsencode(path) == path.encode()
    except UnicodeEncodeError:
        return False


def path_of(text: str) -> str:
    """Returns the path in a flag, with the home for `~`, which shells leave in `--out=~/a`.

    Raises:
      argparse.ArgumentTypeError: it begins with the home of a user who is not known.
    """
    path = os.path.expanduser(text)
    if path.startswith("~"):
        raise argparse.ArgumentTypeError(
            f"{text}: there is no user {path[1:].partition('/')[0]}; a folder of that name here is "
            f"./{text}"
        )
    return path


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
