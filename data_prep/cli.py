"""The command line: `python -m data_prep [convert|download|verify|show]`, and its exit codes."""

import argparse
import contextlib
import errno
import re
import signal
import sys
from collections.abc import Callable, Sequence
from typing import Any, NoReturn, Optional

from cifar10 import schema
from cifar10_program import DATA, TRAIN, started_as
from cifar10_program.common_flags import add_common
from cifar10_program.paths import path_of
from cifar10_program.streams import log_error, one_line, open_streams
from data_prep.errors import DataPrepError

_DESCRIPTION = """\
Turns CIFAR-10 into the TFRecords that {train} trains on.

  {data} download --out raw                    # an archive, 170 MB; resumed, checked
  {data} --source raw/cifar-10-python.tar.gz   # convert, the default; writes data/
  {data} verify data                           # every CRC, label and count
  {data} show data --out grid.png              # a labelled contact sheet

No network? `{data} --source synthetic --out data` makes a learnable stand-in.
`{data} COMMAND --help` has the flags of download, verify and show.
"""

_EPILOG = """\
convert finds out what --source is:
  cifar-10-python.tar.gz   the published Python archive, or its folder cifar-10-batches-py
  cifar-10-binary.tar.gz   the published binary archive, or its folder cifar-10-batches-bin
  cifar-100-python.tar.gz  CIFAR-100 in the same two forms; --labels fine or coarse
  an image tree            train/CLASS/*, test/CLASS/* and, if there is one, validation/CLASS/*
                           of any classes: PNG, JPEG, WEBP, GIF or BMP of 32x32 pixels, or of
                           any size with --resize; a folder, a tar or a zip
  folders of images        CLASS/*, not divided: --eval-fraction holds some out for eval
  Kaggle's files           train/ID.png and trainLabels.csv; a fifth is held out for eval
  synthetic                ten drawn shapes, seeded; not CIFAR-10 (./synthetic for such a folder)

exit codes: 0 done, 1 failed or damage found, 2 bad input or flags, 130 Ctrl-C, 143 SIGTERM
"""

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise SystemExit(_fail(f"{message}; see {self.prog} --help", 2))


def main(argv: Optional[Sequence[str]] = None) -> int:
    """Runs one command and returns its exit code; errors are one line on stderr."""
    open_streams()
    previous = signal.signal(signal.SIGTERM, _terminate)
    try:
        arguments = _parse(sys.argv[1:] if argv is None else argv)
        # numpy's C code makes an ImportError of an exception by a signal, so these wait meanwhile.
        signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
        try:
            from data_prep import commands  # Not needed for --help and errors of flags.
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
        return int(getattr(commands, arguments.command)(arguments))
    except DataPrepError as error:
        return _fail(str(error), error.exit_code)
    except BrokenPipeError:  # The reader has gone.
        return 1
    except OSError as error:
        return _fail(_explain(error), 1)
    except MemoryError:
        return _fail("out of memory: building CIFAR-10's records takes about 500 MB", 1)
    except KeyboardInterrupt:
        return _fail("interrupted; run the same command again to go on", 130)
    finally:
        signal.signal(signal.SIGTERM, previous)


def _terminate(signum: int, frame: object) -> NoReturn:
    # Temporary files are removed on the way out.
    raise SystemExit(_fail("terminated; run the same command again to go on", 143))


def _fail(message: str, code: int) -> int:
    log_error(f"error: {one_line(message)}")
    return code


def _explain(error: OSError) -> str:
    path = f"{error.filename}: " if error.filename else ""
    if error.errno == errno.ENOSPC:
        return f"{path}the disk is full; CIFAR-10's records take 400 MB, an archive 171 MB"
    if isinstance(error, (FileExistsError, NotADirectoryError)):
        return f"{path}is no folder; --out must be a folder"
    return f"{path}{error.strerror or error}"


def _parse(argv: Sequence[str]) -> argparse.Namespace:
    # --validation_size is taken for --validation-size.
    words = [re.sub("^--[^=]*", lambda flag: str(flag[0]).replace("_", "-"), word) for word in argv]
    parsers = _parsers()
    if not words:
        _overview().print_help()
        raise SystemExit(2)
    command = words[0]
    if command.partition("=")[0] in ("-h", "--help", "--version", "--print-completion"):
        _overview().parse_args(words)
    if command.startswith("-"):
        words.insert(0, command := "convert")
    if command not in parsers:
        *most, last = parsers
        rule = f"the commands are {', '.join(most)} and {last}; --source names what to convert"
        raise SystemExit(_fail(f"there is no command {command}: {rule}", 2))
    return parsers[command].parse_args(words[1:], argparse.Namespace(command=command))


def _overview() -> argparse.ArgumentParser:
    """Returns the parser of convert, with the help text for all commands."""
    parser, name = _parsers()["convert"], started_as(DATA)
    parser.prog, parser.usage = name, f"{name} [COMMAND] [flags]"
    parser.description = _DESCRIPTION.format(data=name, train=started_as(TRAIN).split()[-1])
    add_common(parser, DATA, _with_commands)
    return parser


def _with_commands() -> argparse.ArgumentParser:
    """Returns the parser of the whole command line, for completion."""
    parser = _overview()
    commands = parser.add_subparsers()
    for command, made in _parsers().items():
        commands.add_parser(command, help=made.description, parents=[made], add_help=False)
    return parser


def _parsers() -> dict[str, _Parser]:
    """Returns the parser of each command."""
    parsers: dict[str, _Parser] = {}

    def new(command: str, description: str, epilog: Optional[str] = None) -> Any:
        facts: dict[str, Any] = {"description": description, "allow_abbrev": False}
        facts["formatter_class"] = argparse.RawDescriptionHelpFormatter
        parsers[command] = _Parser(f"{started_as(DATA)} {command}", epilog=epilog, **facts)
        return parsers[command].add_argument

    out: dict[str, Any] = {"type": _path, "help": "(default %(default)s)"}
    whole = _number(int, "a whole number from 1 on", lambda value: value >= 1)
    natural = _number(int, "a whole number from 0 on", lambda value: value >= 0)
    most = schema.MAX_SHARDS
    shards = _number(int, f"a whole number from 1 to {most:,}", lambda value: 1 <= value <= most)
    share = _number(float, "a number between 0 and 1", lambda value: 0 < value < 1)

    add = new("convert", "Turns a source into checked records.", _EPILOG)
    add("--source", type=_path, required=True, metavar="PATH", help="archive, folder or synthetic")
    add("--out", default=schema.DEFAULT_DATA_DIR, metavar="DIR", **out)
    text = "training images to hold out, stratified (default: a tenth; 5,000 of 50,000); 0: none"
    add("--validation-size", type=int, metavar="N", help=text)
    text = "which of CIFAR-100's labels: 100 classes or 20 (default fine)"
    add("--labels", choices=("fine", "coarse"), help=text)
    text = "share of class folders without a test folder for eval (default 0.2)"
    add("--eval-fraction", type=share, metavar="SHARE", help=text)
    text = "images that are not 32x32: middle square, black bars or distorted (default: refused)"
    add("--resize", choices=schema.RESIZES, help=text)
    text = "files of the train split; validation and eval are one each (default %(default)s)"
    add("--shards", type=shards, default=1, metavar="N", help=text)
    add("--seed", type=natural, default=0, metavar="N", help="of split, order and synthetic set")
    text = "training images of the synthetic set, a fifth as many for eval (default 10,000)"
    add("--synthetic-size", type=whole, metavar="N", help=text)
    add("--force", action="store_true", help="rebuild, replace records of another program in DIR")

    add = new("download", "Fetches a published archive; run it again to resume.")
    add("--out", default=schema.DEFAULT_DATA_DIR, metavar="DIR", **out)
    text = "which of the published archives; both hold the same images (default %(default)s)"
    add("--archive", choices=("python", "binary"), default="python", help=text)
    text = "another address of the file or, ending in /, of its folder; http is fine, too"
    add("--url", metavar="MIRROR", help=text)

    add = new("verify", "Reads every record and checks it; exit code 1 on any damage.")
    add("folder", type=_path, metavar="DIR")

    add = new("show", "Draws a contact sheet: a row of images for each class.")
    add("folder", type=_path, metavar="DIR")
    add("--out", default="grid.png", metavar="FILE", **out)
    add("--split", choices=schema.SPLITS, default=schema.TRAIN, help="(default %(default)s)")
    add("--count", type=whole, default=12, metavar="N", help="images per class (default 12)")
    add("--seed", type=natural, default=0, metavar="N", help="which images (default 0)")
    return parsers


def _path(text: str) -> str:
    # An unset variable of a shell script would otherwise mean the current folder.
    if not text:
        raise argparse.ArgumentTypeError("must not be empty; leave it out for the default")
    return path_of(text)


def _number(
    kind: Callable[[str], Any], rule: str, is_valid: Callable[[Any], bool]
) -> Callable[[str], Any]:
    def parse(text: str) -> Any:
        with contextlib.suppress(ValueError):
            value = kind(text)
            if is_valid(value):
                return value
        raise argparse.ArgumentTypeError(f"must be {rule}, got {text!r}")

    return parse
