"""The ways to train that `advise` tries."""

import dataclasses
import pathlib
import shlex
from collections.abc import Sequence
from typing import Any, NamedTuple

import yaml

from cifar10.host.cpu import count_cores
from launch.cluster.host_list import on_this_machine
from launch.cluster.model import LEADS, Cluster, Host, Limits

_MOST_TRAINERS = 4  # on one host, where more trainers only share its memory and cores


class Way(NamedTuple):
    """A way to train.

    Attributes:
      title: description for tables and messages.
      cluster: the tasks and their hosts.
      sync: whether updates are synchronous.
      is_described: whether the tasks run on hosts that the user named, so that the command to start
        them needs a cluster file.
    """

    title: str
    cluster: Cluster
    sync: bool
    is_described: bool

    @property
    def trainers(self) -> int:
        """The number of processes that train."""
        return self.cluster.count(*LEADS, "worker")

    @property
    def ps(self) -> int:
        """The number of parameter servers."""
        return self.cluster.count("ps")

    @property
    def updates(self) -> str:
        """How gradients become updates, for tables and messages."""
        if self.trainers == 1:
            return "by itself"
        return "synchronous" if self.sync else "asynchronous"

    def command(self, words: Sequence[str], file: pathlib.Path) -> str:
        """Returns the shell command that trains this way.

        Args:
          words: training flags.
          file: where to write the cluster file, if the command needs one.
        """
        flags = shlex.join(words)
        if self.is_described:
            file.write_text(as_yaml(self.cluster), encoding="utf-8")
            where = f"--cluster {shlex.quote(str(file))}"
        elif self.trainers == 1:
            return f"python cifar10_main.py {flags}"
        else:
            where = f"--on local --workers {self.trainers - 1} --ps {self.ps}"
        return f"python -m launch up {where} -- {flags}"


def ways_on_this_machine() -> list[Way]:
    """Returns one process; 2 trainers, and as many as cores (2 to 4), with one ps and with two."""
    ways = [Way("one process", on_this_machine(0, 0), False, False)]
    for trainers in sorted({2, max(2, min(_MOST_TRAINERS, count_cores()))}):
        for ps in (1, 2):
            title = f"{trainers} trainers and {ps} ps here"
            ways += _both(title, on_this_machine(trainers - 1, ps), False)
    return ways


def ways_on_hosts(cluster: Cluster) -> list[Way]:
    """Returns the ways to train on the hosts of a cluster, whatever their roles are in it."""
    hosts = cluster.hosts
    first, rest = hosts[0].name, [host.name for host in hosts[1:]]
    every = [host.name for host in hosts]

    def placed(trainers: Sequence[str], ps: Sequence[str]) -> Cluster:
        found = []
        for host in hosts:
            roles = {
                "master": int(host.name == trainers[0]),
                "worker": trainers[1:].count(host.name),
                "ps": ps.count(host.name),
            }
            kept = tuple((role, count) for role, count in roles.items() if count)
            if kept:
                found.append(dataclasses.replace(host, roles=kept))
        return dataclasses.replace(cluster, hosts=tuple(found))

    ways = [Way(f"one process on {first}", placed([first], []), False, True)]
    ways += _both(f"2 trainers and 1 ps on {first}", placed([first] * 2, [first]), True)
    if rest:
        for count in sorted({1, len(hosts) // 2, len(hosts)}):
            title = f"{len(hosts)} trainers on {len(hosts)} hosts, {count} ps beside them"
            ways += _both(title, placed(every, every[:count]), True)
        title = f"ps on {first}, {len(rest)} trainer{'s' * (len(rest) > 1)} on the other hosts"
        ways += _both(title, placed(rest, [first]), True)
    return ways


def _both(title: str, cluster: Cluster, is_described: bool) -> list[Way]:
    """Returns the way asynchronous and synchronous, or only once if it has a single trainer."""
    way = Way(title, cluster, False, is_described)
    return [way, way._replace(sync=True)] if way.trainers > 1 else [way]


def as_yaml(cluster: Cluster) -> str:
    """Returns the text of a cluster file that describes the cluster; for `local` and `ssh`."""
    ports: Any = cluster.ports.low or "free"
    if cluster.ports.high:
        ports = f"{ports}-{cluster.ports.high}"
    content = {
        "backend": cluster.backend,
        "hosts": [_host_entry(host) for host in cluster.hosts],
        "ports": ports,
        "environment": dict(cluster.environment),
        "pass_environment": list(cluster.passed),
        "limits": {
            name: "off" if value is None else value
            for name, value in vars(cluster.limits).items()
            if value != getattr(Limits(), name)
        },
        "restarts": cluster.restarts,
        "gpus_per_task": cluster.gpus_per_task,
        "sync": cluster.sync,
    }
    said = {name: one for name, one in content.items() if one is not None and one not in ({}, [])}
    return yaml.safe_dump(said, sort_keys=False)


def _host_entry(host: Host) -> dict[str, Any]:
    entry = {**vars(host), "roles": dict(host.roles)}
    return {name: value for name, value in entry.items() if value is not None}
