"""Descriptions without a file: a list of hosts, or this machine."""

import os
import sys
from pathlib import Path
from typing import Optional

from launch.description import HOST_NAME, USER_NAME, Cluster, Host, Ports
from launch.errors import LaunchError

ROOT = Path(__file__).resolve().parent.parent  # where the code lies, cifar10_main.py included


def code_folder() -> str:
    """The current folder if it holds cifar10_main.py, so that relative paths mean what they say."""
    here = os.getcwd()
    return here if os.path.exists(os.path.join(here, "cifar10_main.py")) else str(ROOT)


def from_hosts(
    names: str, python: Optional[str] = None, workdir: Optional[str] = None, evaluator: bool = False
) -> Cluster:
    """The layout that its users know: `ip0,ip1` -> master, worker, and a ps on each.

    Args:
      names: host names or addresses, with or without `user@`, separated by commas.
      python: the training's Python on the hosts.
      workdir: the folder with the code on the hosts; by default the same one as here.
      evaluator: run one on the last host; the master is a chief then.
    """
    lead = "chief" if evaluator else "master"
    words = [word.strip() for word in names.split(",")]
    hosts = []
    for position, word in enumerate(words):
        user, name = parse_name(word)
        roles = [("worker" if position else lead, 1), ("ps", 1)]
        if evaluator and position == len(words) - 1:
            roles.append(("evaluator", 1))
        hosts.append(
            Host(
                name=name,
                address=name,
                roles=tuple(roles),
                user=user,
                python=python or default_python(),
                workdir=workdir or code_folder(),
            )
        )
    return Cluster(hosts=tuple(hosts))


def on_this_machine(
    workers: int,
    ps: int,
    python: Optional[str] = None,
    workdir: Optional[str] = None,
    evaluator: bool = False,
) -> Cluster:
    """A master, `workers` workers and `ps` ps as processes here, on free ports."""
    roles = [("chief" if evaluator else "master", 1), ("worker", workers), ("ps", ps)]
    if evaluator:
        roles.append(("evaluator", 1))
    host = Host(
        name="localhost",
        address="127.0.0.1",
        roles=tuple((role, count) for role, count in roles if count),
        python=python or sys.executable,
        workdir=os.path.abspath(workdir or code_folder()),
        agent_python=sys.executable,
    )
    return Cluster(hosts=(host,), backend="local", ports=Ports(low=None), source="--on local")


def parse_name(word: str) -> tuple[Optional[str], str]:
    """Splits `user@name`; LaunchError for what is neither."""
    user, at, name = word.rpartition("@")
    if not HOST_NAME.fullmatch(name) or (at and not USER_NAME.fullmatch(user)):
        raise LaunchError(
            f"{word!r} is not a host: it must be NAME or USER@NAME, of letters, digits, . _ : -; "
            "separate hosts by commas"
        )
    return (user if at else None), name


def default_python() -> str:
    """The venv of this checkout, if the launcher itself runs from it; else python3."""
    return ".venv/bin/python" if Path(sys.prefix) == ROOT / ".venv" else "python3"
