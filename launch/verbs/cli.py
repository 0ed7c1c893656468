"""`python -m launch VERB`: the command line.

What a verb needs is imported when it runs, so that every verb starts quickly.
"""

import argparse
import sys
from collections.abc import Callable, Sequence
from typing import Optional

from cifar10_program.streams import complain, open_streams
from launch.backends.registry import backend_named
from launch.errors import HostError, LaunchError
from launch.screen.plain import plain_lines
from launch.verbs import flags
from launch.verbs.described_cluster import cluster_of


def main(argv: Optional[Sequence[str]] = None) -> int:
    """Runs a command line and returns its exit code; a mistake of the user gives 2.

    A file or a host that cannot be used gives 1.
    """
    open_streams()
    words = list(sys.argv[1:] if argv is None else argv)
    split = words.index("--") if "--" in words else len(words)
    try:
        descriptions = {verb: text for verb, (_, text) in _VERBS.items()}
        options = flags.parse(words[:split], descriptions)
        options.arguments = words[split + 1 :]
        run_verb, _ = _VERBS[options.verb]
        if options.arguments and not hasattr(options, "cluster"):
            raise LaunchError(f"{options.verb} takes no training arguments after --")
        if any(word.startswith(("--config", "--recipe")) for word in options.arguments):
            from launch.cluster.training_files import with_settings

            options.arguments = with_settings(options.arguments)
        return run_verb(options)
    except LaunchError as error:
        complain(f"error: {plain_lines(str(error))}")
        return error.exit_code
    except BrokenPipeError:  # The reader, such as `head`, has ended.
        return 0
    except OSError as error:  # such as a full disk, or a folder of another user
        place = "" if error.filename is None else f"{error.filename}: "
        complain(f"error: {plain_lines(f'{place}{error.strerror or error}')}")
        return HostError.exit_code
    except KeyboardInterrupt:
        return 130


def _plan(options: argparse.Namespace) -> int:
    from launch.cluster.show import as_documents
    from launch.cluster.tasks import make_job

    job = make_job(cluster_of(options), options.arguments)
    backend = backend_named(job.cluster.backend)
    if options.shell:
        print(as_documents(backend.plan(job)))
    else:
        print(backend.plan_json(job) if options.json else backend.plan_text(job))
    return 0


def _init(options: argparse.Namespace) -> int:
    from launch.verbs.init import init

    return init(options)


def _setup(options: argparse.Namespace) -> int:
    from launch.verbs.setup import setup, with_python

    return setup(with_python(cluster_of(options), options), options)


def _check(options: argparse.Namespace) -> int:
    from launch.cluster.tasks import make_job
    from launch.verbs.check import check

    return check(make_job(cluster_of(options), options.arguments))


def _up(options: argparse.Namespace) -> int:
    from launch.verbs.up import up

    return up(cluster_of(options), options)


def _on_a_run(options: argparse.Namespace) -> int:
    from launch.verbs import runs

    verb: Callable[[argparse.Namespace], int] = getattr(runs, options.verb)
    return verb(options)


def _attach(options: argparse.Namespace) -> int:
    from launch.verbs.attach import attach

    return attach(options)


def _list(options: argparse.Namespace) -> int:
    from launch.verbs.listing import list_runs

    return list_runs(options)


def _logs(options: argparse.Namespace) -> int:
    from launch.verbs.logs import logs

    return logs(options)


# verb -> (the function that runs it, its description in the help)
_VERBS = {
    "init": (_init, "write a commented cluster file"),
    "plan": (_plan, "show every task's TF_CONFIG, command and devices"),
    "setup": (_setup, "prepare bare hosts: code, .venv, kernels and records"),
    "check": (_check, "check the hosts before a job"),
    "up": (_up, "run the job to its end"),
    "attach": (_attach, "show a run again until it ends; Ctrl-C leaves it running"),
    "list": (_list, "show all runs: state, age and accuracy"),
    "status": (_on_a_run, "show the state of each task of a run"),
    "logs": (_logs, "print the logs of tasks"),
    "stop": (_on_a_run, "end a run; the master saves first"),
    "clean": (_on_a_run, "end what a run has left behind on any host"),
}
