"""Descriptions without a file: a list of hosts, or this machine."""

import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Optional

from launch.cluster.kind import Kind
from launch.cluster.model import FREE_PORTS, HOST_NAME, LEADS, USER_NAME, Cluster, Host
from launch.errors import LaunchError

ROOT = Path(__file__).resolve().parents[2]  # where the code lies, cifar10_main.py included


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
    return Cluster(hosts=(host,), backend="local", ports=FREE_PORTS, source="--on local")


def on_chosen_hosts(
    kind: Kind,
    counts: Mapping[str, int],
    num_hosts: Optional[int] = None,
    python: Optional[str] = None,
    workdir: Optional[str] = None,
) -> Cluster:
    """Tasks on hosts that a scheduler will choose: `node0`, `node1` and so on until then.

    Args:
      kind: a backend that chooses the hosts.
      counts: task type -> how many.
      num_hosts: over how many hosts the tasks are dealt out, trainers first; by default one for
        each trainer, and the ps beside them. Not where each task has its own.
      python: the training's Python there.
      workdir: the folder with the code there; by default the same one as here.

    Raises:
      LaunchError: more hosts than tasks, or a number where each task has its own.
    """
    trainers = [role for role in (*LEADS, "worker") for _ in range(counts.get(role, 0))]
    others = [role for role in ("ps", "evaluator") for _ in range(counts.get(role, 0))]
    if kind.host_per_task:
        if num_hosts is not None:
            raise LaunchError(
                f"{kind.name} chooses nodes itself, a pod for each task; leave them out"
            )
        num_hosts = len(trainers) + len(others)
    elif num_hosts is None:
        num_hosts = max(1, len(trainers))
    if num_hosts > len(trainers) + len(others):
        raise LaunchError(
            f"{num_hosts} nodes for {len(trainers) + len(others)} tasks; take fewer nodes"
        )
    # With fewer trainers than hosts, the ps begin where the trainers end.
    first = len(trainers) if len(trainers) < num_hosts else 0
    roles: list[dict[str, int]] = [{} for _ in range(num_hosts)]
    for dealt, start in ((trainers, 0), (others, first)):
        for position, role in enumerate(dealt, start):
            one = roles[position % num_hosts]
            one[role] = one.get(role, 0) + 1
    hosts = tuple(
        Host(
            name=f"node{position}",
            address=f"node{position}",
            roles=tuple(one.items()),
            python=python or default_python(),
            workdir=workdir or code_folder(),
        )
        for position, one in enumerate(roles)
    )
    return Cluster(
        hosts=hosts, backend=kind.name, ports=kind.default_ports, source=f"--on {kind.name}"
    )


def parse_name(word: str) -> tuple[Optional[str], str]:
    """Splits `user@name`; LaunchError for what is neither."""
    user, at, name = word.rpartition("@")
    if not re.fullmatch(HOST_NAME, name) or (at and not re.fullmatch(USER_NAME, user)):
        raise LaunchError(
            f"{word!r} is not a host: it must be NAME or USER@NAME, of letters, digits, . _ : -; "
            "separate hosts by commas"
        )
    return (user if at else None), name


def default_python() -> str:
    """The venv of this checkout, if the launcher itself runs from it; else python3."""
    return ".venv/bin/python" if Path(sys.prefix) == ROOT / ".venv" else "python3"
