"""The command line: `python -m data_prep [convert|download|verify|show]`, and its exit codes."""

import argparse
import errno
import signal
import sys
from collections.abc import Sequence
from typing import NoReturn, Optional

from cifar10 import schema
from cifar10_program import DATA, TRAIN, started_as
from cifar10_program.common_flags import add_common
from cifar10_program.paths import path_of
from cifar10_program.streams import complain, one_line, open_streams
from data_prep import signals
from data_prep.errors import DataPrepError

COMMANDS = ("convert", "download", "verify", "show")

_DESCRIPTION = """\
Turns CIFAR-10 into the TFRecords that {train} trains on.

  {data} download --out raw                    # 170 MB over https, checked
  {data} --source raw/cifar-10-python.tar.gz --out data
  {data} verify data                           # every CRC, label and count
  {data} show data --out grid.png              # look at it

No network? `{data} --source synthetic --out data` makes a learnable stand-in.

commands (`{data} COMMAND --help` for their flags):
  convert   archive, folder, image tree or `synthetic` -> records; the default
  download  fetch the published archives: resumed, checked by SHA-256
  verify    check a folder of records, with or without a manifest
  show      draw a labelled contact sheet
"""

_EPILOG = """\
convert finds out what --source is:
  cifar-10-python.tar.gz   the published Python archive, or its folder cifar-10-batches-py
  cifar-10-binary.tar.gz   the published binary archive, or its folder cifar-10-batches-bin
  an image tree            train/CLASS/* and test/CLASS/* with CIFAR-10's ten class names: PNG,
                           JPEG, WEBP, GIF or BMP files of 32x32 pixels, or of any size with
                           --resize; a folder, a tar (none, gzip, bzip2, xz) or a zip;
                           validation/CLASS/* (or val, valid) is taken as it is when it is there
  Kaggle's files           train/ID.png and trainLabels.csv; a fifth is held out for eval
  synthetic                ten drawn shapes, seeded; not CIFAR-10 (./synthetic for such a folder)

The records are ready when the folder has a manifest.json and no file INCOMPLETE. A second run with
the same input and options does nothing.

exit codes: 0 done, 1 failed or damage found, 2 bad input or flags, 130 Ctrl-C, 143 SIGTERM
"""


# The commands that are not named here share one text.
_DISK_IS_FULL = {
    "convert": "the disk is full; 400 MB are enough for building CIFAR-10's records",
    "download": "the disk is full; an archive takes 171 MB; free some, then run again to resume",
}
_DISK_IS_FULL_ELSE = "the disk is full; free some space"
_OUT_OF_MEMORY = {"convert": "out of memory: building takes about 500 MB"}
_OUT_OF_MEMORY_ELSE = "out of memory; end other programs, or raise the limit of this one"


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        complain(f"error: {message}; see {self.prog} --help")
        raise SystemExit(2)


def main(argv: Optional[Sequence[str]] = None) -> int:
    """Runs one command and returns its exit code; errors are one line on stderr."""
    open_streams()
    previous = signal.signal(signal.SIGTERM, signals.terminate)
    waited = signals.hold()
    command = ""
    try:
        arguments = _parse(sys.argv[1:] if argv is None else argv)
        command = arguments.command
        return _run(arguments)
    except DataPrepError as error:
        return _fail(str(error), error.exit_code)
    except BrokenPipeError:  # The reader has gone.
        return 1
    except OSError as error:
        return _fail(_explain(error, command), 1)
    except MemoryError:
        return _fail(_OUT_OF_MEMORY.get(command, _OUT_OF_MEMORY_ELSE), 1)
    except KeyboardInterrupt:
        return _fail("interrupted; run the same command again to go on", 130)
    except signals.Terminated:
        return _fail("terminated; run the same command again to go on", 143)
    finally:
        signal.signal(signal.SIGTERM, previous)
        signals.restore(waited)


def _fail(message: str, code: int) -> int:
    complain(f"error: {one_line(message)}")
    return code


def _explain(error: OSError, command: str) -> str:
    place = f"{error.filename}: " if error.filename else ""
    if error.errno == errno.ENOSPC:
        return place + _DISK_IS_FULL.get(command, _DISK_IS_FULL_ELSE)
    return f"{place}{error.strerror or error}"


def _run(arguments: argparse.Namespace) -> int:
    # Imported here, so that --help and flag errors do not need numpy.
    from data_prep.commands import convert, download, show, verify

    runs = (convert.run, download.run, verify.run, show.run)
    signals.heed()
    return runs[COMMANDS.index(arguments.command)](arguments)


def _parse(argv: Sequence[str]) -> argparse.Namespace:
    words = [_dashed(word) for word in argv]
    if not words:
        _overview().print_help()
        raise SystemExit(2)
    if words[0].partition("=")[0] in ("-h", "--help", "--version", "--print-completion"):
        _overview().parse_args(words)
    if words[0] not in COMMANDS and not words[0].startswith("-"):
        known = f"{', '.join(COMMANDS[:-1])} and {COMMANDS[-1]}"
        rule = f"the commands are {known}; --source names what to convert"
        raise SystemExit(_fail(f"there is no command {words[0]}: {rule}", 2))
    command, rest = (words[0], words[1:]) if words[0] in COMMANDS else ("convert", words)
    arguments = _PARSERS[command]().parse_args(rest)
    arguments.command = command
    return arguments


def _dashed(word: str) -> str:
    """Accepts --validation_size for --validation-size."""
    if not word.startswith("--"):
        return word
    flag, equals, value = word.partition("=")
    return flag.replace("_", "-") + equals + value


def _overview() -> argparse.ArgumentParser:
    """Returns the parser of convert, with the help text for all commands."""
    parser, name = _convert_parser(), started_as(DATA)
    parser.prog, parser.usage, parser.epilog = name, f"{name} [COMMAND] [flags]", _EPILOG
    parser.description = _DESCRIPTION.format(data=name, train=started_as(TRAIN).split()[-1])
    add_common(parser, DATA, _with_commands)
    return parser


def _with_commands() -> argparse.ArgumentParser:
    """Returns the parser of the whole command line, for completion."""
    parser = _overview()
    commands = parser.add_subparsers()
    for command, make in _PARSERS.items():
        made = make()
        commands.add_parser(command, help=made.description, parents=[made], add_help=False)
    return parser


def _parser(command: str, description: str) -> _Parser:
    return _Parser(
        f"{started_as(DATA)} {command}",
        description=description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )


def _convert_parser() -> _Parser:
    parser = _parser("convert", "Turns a source into checked records.")
    parser.epilog = _EPILOG
    add = parser.add_argument
    add(
        "--source",
        type=_path,
        required=True,
        metavar="PATH",
        help="archive, folder, or `synthetic`",
    )
    _add_out(parser, schema.DEFAULT_DATA_DIR, "DIR", "(default %(default)s)")
    add(
        "--validation-size",
        type=int,
        metavar="N",
        help="training images to hold out, stratified (default: a tenth; 5,000 of 50,000); 0: none",
    )
    add(
        "--resize",
        choices=schema.RESIZES,
        help="images of other sizes than 32x32: the middle square (crop), the whole image with "
        "black bars (pad) or without its proportions (stretch); default: they are refused",
    )
    add(
        "--shards",
        type=_shards,
        default=1,
        metavar="N",
        help="files of the train split; validation and eval are one each (default %(default)s)",
    )
    add(
        "--seed",
        type=_natural,
        default=0,
        metavar="N",
        help="seed of the split, the order and the synthetic set",
    )
    add(
        "--synthetic-size",
        type=_positive,
        metavar="N",
        help="training images of the synthetic set, a fifth as many for eval (default 10,000)",
    )
    add(
        "--force",
        action="store_true",
        help="rebuild, and replace records of another program in DIR",
    )
    return parser


def _download_parser() -> _Parser:
    parser = _parser("download", "Fetches a published archive; run it again to resume.")
    add = parser.add_argument
    _add_out(parser, schema.DEFAULT_DATA_DIR, "DIR", "(default %(default)s)")
    add(
        "--archive",
        choices=("python", "binary"),
        default="python",
        help="which of the published archives; both hold the same images (default %(default)s)",
    )
    add(
        "--url",
        metavar="MIRROR",
        help="another address of the file, or of the folder that holds it (ends in /); "
        "http is fine, too: the SHA-256 decides",
    )
    return parser


def _verify_parser() -> _Parser:
    parser = _parser("verify", "Reads every record and checks it; exit code 1 on any damage.")
    parser.add_argument("folder", type=_path, metavar="DIR")
    return parser


def _show_parser() -> _Parser:
    parser = _parser("show", "Draws a contact sheet: a row of images for each class.")
    add = parser.add_argument
    add("folder", type=_path, metavar="DIR")
    _add_out(parser, "grid.png", "FILE", "PNG to write (default %(default)s)")
    add("--split", choices=schema.SPLITS, default=schema.TRAIN, help="(default %(default)s)")
    add("--count", type=_positive, default=12, metavar="N", help="images per class (default 12)")
    add("--seed", type=_natural, default=0, metavar="N", help="which images (default 0)")
    return parser


_PARSERS = {
    "convert": _convert_parser,
    "download": _download_parser,
    "verify": _verify_parser,
    "show": _show_parser,
}


def _add_out(parser: _Parser, default: str, metavar: str, text: str) -> None:
    parser.add_argument("--out", type=_path, default=default, metavar=metavar, help=text)


def _path(text: str) -> str:
    # An unset variable of a shell script would otherwise mean the current folder.
    if not text:
        raise argparse.ArgumentTypeError("must not be empty; leave it out for the default")
    return path_of(text)


def _positive(text: str) -> int:
    return _whole(text, 1)


def _natural(text: str) -> int:
    return _whole(text, 0)


def _shards(text: str) -> int:
    value = _positive(text)
    if value > schema.MAX_SHARDS:
        raise argparse.ArgumentTypeError(f"must be at most {schema.MAX_SHARDS:,}, got {text!r}")
    return value


def _whole(text: str, least: int) -> int:
    try:
        value = int(text)
    except ValueError:
        value = least - 1
    if value < least:
        raise argparse.ArgumentTypeError(f"must be a whole number from {least} on, got {text!r}")
    return value
