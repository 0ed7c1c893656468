"""`init`: writes a commented cluster file from flags, or from the answers to a few questions."""

import argparse
import contextlib
import dataclasses
import os
import sys
import tempfile
from collections.abc import Callable, Mapping
from typing import Any, Optional, TypeVar

from cifar10_program import LAUNCH, started_as
from launch.backends.registry import KINDS
from launch.cluster import host_list
from launch.cluster.cluster_file import read_cluster
from launch.cluster.kind import Kind
from launch.cluster.model import Host
from launch.cluster.rules import whole
from launch.errors import LaunchError
from launch.verbs.cluster_text import Layout, cluster_text
from launch.verbs.facts import SETUP_PYTHON

T = TypeVar("T")

_MOST = whole(0, 1000)
# Backend -> the keys of its section that are asked for.
_ASKED: Mapping[str, Mapping[str, str]] = {
    "docker": {"image": "image on the hosts"},
    "kubernetes": {
        "image": "image, as the nodes pull it",
        "data": "volume with the records (claim, /path, server:/path)",
        "output": "volume for the results",
    },
}


def init(options: argparse.Namespace, ask: "Optional[Ask]" = None) -> int:
    """Writes the file and returns 0.

    Args:
      options: the parsed flags.
      ask: asks a question of the user; by default, on the terminal if there is one.

    Raises:
      LaunchError: a flag is wrong or missing, or the file is there already, or is no regular one.
    """
    _refuse_to_overwrite(options)
    kind = KINDS[options.on or "ssh"]
    is_complete = options.hosts is not None or (
        options.on is not None and (kind.chooses_hosts or kind.is_this_machine)
    )
    if ask is None and not is_complete and sys.stdin.isatty() and sys.stdout.isatty():
        ask = _on_terminal
    if ask is None and not is_complete:
        raise LaunchError(
            "init asks its questions on a terminal, and this is none; describe the cluster with "
            "--hosts ip0,ip1, or with --on slurm, kubernetes or local (--workers, --ps)"
        )
    layout = _layout(options, kind, _given if is_complete or ask is None else ask)
    text = cluster_text(layout, options.out)
    _check(text, options.out)
    _write(text, options)
    print(f"{options.out}: {_next_step(layout.kind, options.out)}")
    return 0


# A function of (question, default, rule) that returns an answer as the rule reads it.
Ask = Callable[[str, str, Callable[[str], Any]], Any]


def _given(question: str, default: str, rule: Callable[[str], T]) -> T:
    """Takes the default as the answer: nobody is asked."""
    return rule(default)


def _on_terminal(question: str, default: str, rule: Callable[[str], T]) -> T:
    """Asks on the terminal until the rule takes the answer; shows why it does not."""
    from rich.prompt import Prompt

    while True:
        # Without a default, an empty answer is refused by the rule.
        try:
            answer = Prompt.ask(question, default=default or None, show_default=bool(default))
        except EOFError:
            raise LaunchError("no answer: the input has ended; nothing was written") from None
        try:
            return rule((answer or "").strip())
        except LaunchError as error:
            print(f"  {error}")


def _layout(options: argparse.Namespace, kind: Kind, ask: Ask) -> Layout:
    """Asks for what no flag gives.

    Raises:
      LaunchError: a flag is wrong.
    """

    def value(flag: str, question: str, default: str, rule: Callable[[str], T]) -> T:
        given = getattr(options, flag)
        if given is None:
            return ask(question, default, rule)  # type: ignore[no-any-return]
        try:
            return rule(str(given))
        except LaunchError as error:
            raise LaunchError(f"--{flag} {error}") from None

    kind = KINDS[value("on", f"where tasks run ({', '.join(KINDS)})", "ssh", _kind)]
    _refuse_flags(options, kind)
    hosts: tuple[Host, ...] = ()
    if kind.chooses_hosts or kind.is_this_machine:
        workers = value("workers", "workers beside the master", "1", _MOST)
        num_ps = value("ps", "parameter servers", "1", _MOST)
    else:
        hosts = value("hosts", "hosts, as ssh knows them, with commas between", "", _hosts)
        workers = len(hosts) - 1
        num_ps = value("ps", "parameter servers", str(len(hosts)), _MOST)
    is_separate = options.evaluator or ask("separate evaluator (y/n)", "n", _yes)
    workdir = python = None
    if not (kind.has_image and kind.chooses_hosts):
        question = "folder with the code" + ("" if kind.is_this_machine else " on the hosts")
        workdir = value("workdir", question, host_list.code_folder(), _rule_of(Host, "workdir"))
    if not kind.has_image:
        python = value("python", "Python of the training", SETUP_PYTHON, _rule_of(Host, "python"))
    settings = {
        key: ask(question, _default_of(kind, key), _rule_of(kind.settings, key))
        for key, question in _ASKED.get(kind.name, {}).items()
    }
    counts = {"chief" if is_separate else "master": 1, "worker": workers, "ps": num_ps}
    counts |= {"evaluator": int(is_separate)}
    return Layout(
        kind=kind,
        hosts=_dealt_out(hosts, counts),
        counts={task_type: count for task_type, count in counts.items() if count},
        python=python,
        workdir=workdir,
        settings=settings,
    )


def _dealt_out(
    hosts: tuple[Host, ...], counts: Mapping[str, int]
) -> list[tuple[str, Optional[str], dict[str, int]]]:
    """Distributes the tasks: a trainer on each host, the ps in turns, the evaluator on the last."""
    if not hosts:  # this machine
        everything = {task_type: count for task_type, count in counts.items() if count}
        return [("localhost", None, everything)]
    lead = next(iter(counts))
    found: list[tuple[str, Optional[str], dict[str, int]]] = []
    for i, host in enumerate(hosts):
        ps, further = divmod(counts["ps"], len(hosts))
        roles = {"worker" if i else lead: 1, "ps": ps + (i < further)}
        roles["evaluator"] = counts["evaluator"] if i == len(hosts) - 1 else 0
        found.append((host.name, host.user, {key: one for key, one in roles.items() if one}))
    return found


def _refuse_flags(options: argparse.Namespace, kind: Kind) -> None:
    has_hosts = not (kind.chooses_hosts or kind.is_this_machine)
    wrong = {
        "hosts": None if has_hosts else "it has no list of hosts; give --workers and --ps",
        "workers": "each host after the first has a worker; leave it out" if has_hosts else None,
        "python": "the image has its own Python; leave it out" if kind.has_image else None,
        "workdir": "the image holds the code; leave it out"
        if kind.has_image and kind.chooses_hosts
        else None,
    }
    for flag, why in wrong.items():
        given = getattr(options, flag)
        if given is not None and why is not None:
            raise LaunchError(f"--{flag} {given} does not go with --on {kind.name}: {why}")


def _kind(text: str) -> str:
    if text not in KINDS:
        raise LaunchError(f"must be one of {', '.join(KINDS)}, got {text!r}")
    return text


def _hosts(text: str) -> tuple[Host, ...]:
    """Reads a list of hosts, as `--hosts` is read."""
    if not text:
        raise LaunchError("must name at least one host, such as node0,node1")
    return host_list.from_hosts(text).hosts


def _yes(text: str) -> bool:
    if text.lower() not in ("y", "yes", "n", "no"):
        raise LaunchError(f"must be y or n, got {text!r}")
    return text.lower() in ("y", "yes")


def _rule_of(settings: Any, key: str) -> Callable[[str], Any]:
    """Returns the rule by which the parser of cluster files reads a key."""
    fields = {field.name: field for field in dataclasses.fields(settings)}
    rule: Callable[[str], Any] = fields[key].metadata["rule"]
    return rule


def _default_of(kind: Kind, key: str) -> str:
    fields = {field.name: field for field in dataclasses.fields(kind.settings or Host)}
    return str(fields[key].default)


def _refuse_to_overwrite(options: argparse.Namespace) -> None:
    real = os.path.realpath(options.out)
    # A renamed file would replace a device.
    if os.path.lexists(real) and not os.path.isfile(real):
        what = "a folder" if os.path.isdir(real) else "no regular file"
        raise LaunchError(f"{options.out}: is {what}; name another with --out")
    if os.path.lexists(options.out) and not options.force:
        raise LaunchError(
            f"{options.out} is there already; name another file by --out, or replace it by --force"
        )


def _check(text: str, path: str) -> None:
    """Reads the text as `--cluster` will; LaunchError if the answers do not go together."""
    with tempfile.TemporaryDirectory() as folder:
        draft = os.path.join(folder, "draft.yaml")
        with open(draft, "w", encoding="utf-8") as file:
            file.write(text)
        try:
            read_cluster(draft, KINDS)
        except LaunchError as error:
            words = str(error).replace(draft, path)
            raise LaunchError(f"{words}; nothing was written") from None


def _write(text: str, options: argparse.Namespace) -> None:
    """Writes the file, at once or not at all; another one of that name only with --force.

    A symbolic link stays, and the file that it names is written.
    """
    path = os.path.realpath(options.out)
    part = f"{path}.part-{os.getpid()}"
    try:
        with open(part, "w", encoding="utf-8") as file:
            file.write(text)
        if not options.force:
            with open(path, "x", encoding="utf-8"):
                pass  # now the name is ours
        os.replace(part, path)
    except FileExistsError:
        raise LaunchError(f"{options.out} is there already; --force replaces it") from None
    except OSError as error:
        raise LaunchError(f"{options.out}: {error.strerror}; name another with --out") from None
    finally:
        with contextlib.suppress(OSError):  # most often it has another name now
            os.unlink(part)


def _next_step(kind: Kind, path: str) -> str:
    verb = "setup" if kind.name == "ssh" else "check"
    if kind.name == "kubernetes":
        verb = "plan"
    return f"written; next: {started_as(LAUNCH)} {verb} --cluster {path}"
