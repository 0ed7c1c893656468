"""`python -m launch VERB`: the table of verbs, and the command line.

What a verb needs is imported when it runs, so that every verb starts quickly.
"""

import argparse
import contextlib
import os
import sys
from collections.abc import Sequence
from pkgutil import resolve_name
from typing import NoReturn, Optional

from cifar10_program import LAUNCH, TRAIN, started_as
from cifar10_program.common_flags import add_common
from cifar10_program.streams import log_error, open_streams
from launch.backends.registry import BACKENDS
from launch.cluster.model import Cluster, Host, Limits
from launch.cluster.tasks import with_settings
from launch.cluster.yaml_section import keys_of
from launch.errors import HostError, LaunchError
from launch.screen.row import plain_lines
from launch.verbs import flags

_EPILOG = """\
TRAINING ARGS, after `--`, go to {train}, the same for every task:
  {launch} plan --hosts ip0,ip1 -- --train-batch-size=16
  {launch} up --cluster lab.yaml -- --data-dir /data/data --output-dir /data/output
"""


# Name -> module and function, the description in the help, and the flags.
_VERBS: dict[str, tuple[str, str, Sequence[flags.Flag]]] = {
    "init": ("init:init", "write a commented cluster file", flags.INIT),
    "plan": ("check:plan", "show every task's TF_CONFIG, command and devices", flags.PLAN),
    "setup": ("setup:setup", "prepare bare hosts: code, .venv, kernels, records", flags.SETUP),
    "check": ("check:check", "check the hosts before a job", (*flags.CLUSTER, flags.JSON)),
    "up": ("up:up", "run the job to its end", flags.UP),
    "attach": ("runs:attach", "show a run again; Ctrl-C leaves it running", flags.RUN),
    "list": ("runs:list_runs", "show all runs: state, age and accuracy", (*flags.LIST, flags.JSON)),
    "status": ("runs:status", "show the state of each task of a run", (*flags.RUN, flags.JSON)),
    "logs": ("runs:logs", "print the logs of tasks", flags.LOGS),
    "stop": ("runs:stop", "end a run; the master saves first", flags.STOP),
    "clean": ("runs:clean", "end what a run has left behind on any host", flags.CLEAN),
}


def main(argv: Optional[Sequence[str]] = None) -> int:
    """Runs a command line and returns its exit code; a mistake of the user gives 2.

    A file or a host that cannot be used gives 1.
    """
    open_streams()
    with contextlib.suppress(OSError):  # a pipe of others, as of Node, may refuse lines
        os.set_blocking(sys.stdout.fileno(), True)
    if not sys.platform.startswith("linux"):  # it reads /proc, and so do the agents
        log_error(f"error: the launcher runs on Linux, not on {sys.platform}; see docs/launch.md")
        return 2
    words = list(sys.argv[1:] if argv is None else argv)
    split = words.index("--") if "--" in words else len(words)
    try:
        options = _parse(words[:split])
        options.arguments = with_settings(words[split + 1 :])
        if options.arguments and not hasattr(options, "cluster"):
            raise LaunchError(f"{options.verb} takes no training arguments after --")
        exit_code: int = resolve_name(f"launch.verbs.{_VERBS[options.verb][0]}")(options)
        return exit_code
    except LaunchError as error:
        log_error(f"error: {plain_lines(str(error))}")
        return error.exit_code
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        if not hasattr(options, "run"):  # then no file of a run can be the reason
            raise
        damage = f"a file of the run is damaged ({error!r})"
        log_error(f"error: {plain_lines(damage)}; clean --forget takes the run off the list")
        return HostError.exit_code
    except BrokenPipeError:  # The reader, such as `head`, has ended.
        return 0
    except OSError as error:  # such as a full disk, or a folder of another user
        place = "" if error.filename is None else f"{error.filename}: "
        log_error(f"error: {plain_lines(f'{place}{error.strerror or error}')}")
        return HostError.exit_code
    except KeyboardInterrupt:
        return 130


# What other launchers call a verb -> the verb.
_OTHER_WORDS = {"log": "logs", "cancel": "stop", "delete": "stop", "down": "stop"}


def _key_of(flag: str, words: Sequence[str]) -> str:
    """Returns the key of a cluster file that a flag may mean, such as `slurm.time`; "" if none.

    Of several backends with such a key, the one that `words` name counts.
    """
    name = flag.lstrip("-").partition("=")[0].replace("-", "_")
    backends = sorted(BACKENDS.values(), key=lambda backend: backend.name not in words)
    if name in ("e", "env"):
        return "environment.NAME"
    known = [("", Cluster), ("", Host), ("limits.", Limits)]
    known += [(f"{backend.name}.", backend.settings) for backend in backends if backend.settings]
    found = (f"{prefix}{name}" for prefix, settings in known if name in keys_of(settings))
    return next(found, "")


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        log_error(f"error: {plain_lines(message)}; see {self.prog} --help")
        raise SystemExit(2)


def _parse(words: Sequence[str]) -> argparse.Namespace:
    """Parses the words before `--`; a mistake or a flag such as --help ends the program."""
    parser = _Parser(
        prog=started_as(LAUNCH),
        allow_abbrev=False,
        description="Runs a training job on a cluster of hosts.",
        epilog=_EPILOG.format(train=started_as(TRAIN).split()[-1], launch=started_as(LAUNCH)),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_common(parser, LAUNCH)
    subparsers = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    for verb, (_, words_of_help, flags_of_verb) in _VERBS.items():
        of_verb = subparsers.add_parser(verb, allow_abbrev=False, help=words_of_help)
        for names, facts in flags_of_verb:
            of_verb.add_argument(*names, **facts)
    if words and words[0] in _OTHER_WORDS:
        parser.error(f"no verb {words[0]}; the verb for that is `{_OTHER_WORDS[words[0]]}`")
    options, unknown = parser.parse_known_args(words)
    if unknown:
        keys = [key for word in unknown if word.startswith("-") and (key := _key_of(word, words))]
        hint = f"write it as {', '.join(f'--set {key}=VALUE' for key in keys)}" if keys else ""
        hint = hint or "training's own arguments go after --"
        parser.error(f"unknown: {' '.join(unknown)}; {hint}")
    return options
