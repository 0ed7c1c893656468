"""Reads a cluster from a YAML file and checks it strictly; docs/launch.md shows the keys."""

import os
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Optional

import yaml

from launch.cluster.host_list import (
    chosen_hosts,
    default_python,
    is_this_machine,
    named,
    nameless_host,
)
from launch.cluster.model import LEADS, TASK_TYPES, Cluster, Host, Kind, Limits, host_name
from launch.cluster.yaml_section import (
    Node,
    Section,
    matching,
    read,
    read_fields,
    read_settings,
    whole,
)
from launch.errors import LaunchError


def read_cluster(path: str, kinds: Mapping[str, Kind], on: Optional[str] = None) -> Cluster:
    """Reads and checks a cluster file.

    Args:
      path: the path of the file.
      kinds: backend name -> its kind, for every backend that the file may name.
      on: the name of the backend to use instead of the one in the file.

    Raises:
      LaunchError: the file cannot be read or is wrong; the message about a wrong key or value
        begins with `lab.yaml:12:`.
    """
    top = read(path)
    is_known = matching("|".join(map(re.escape, kinds)), f"one of {', '.join(kinds)}")
    own_backend = top.take("backend", is_known, "ssh")
    kind = kinds[on or own_backend]
    hosts_node = top.node_of("tasks" if kind.chooses_hosts else "hosts")
    if hosts_node is None:
        rule = "hosts is missing; list the machines under it"
        if kind.chooses_hosts:
            rule = (
                f"tasks is missing; {kind.name} needs their counts (`tasks: {{master: 1, ps: 1}}`)"
            )
        raise top.error(top.node, rule)
    if kind.chooses_hosts and "user" in top.left:
        key, _ = top.left["user"]
        raise top.error(key, f"user is for logins by ssh; {kind.name} has none, so leave it out")
    hosts = _dealt_out(top, hosts_node, kind) if kind.chooses_hosts else _hosts(top, hosts_node)
    if kind.is_this_machine and (len(hosts) > 1 or not is_this_machine(hosts[0].address)):
        names = ",".join(host.name for host in hosts)
        raise top.error(
            hosts_node,
            f"hosts {names} does not go with {kind.name}: all tasks run on this machine; list "
            "localhost alone, or run on ssh",
        )
    said = {"ports": kind.default_ports, **read_fields(top, Cluster)}
    limits = top.section("limits")
    if limits is not None:
        said["limits"] = read_settings(limits, Limits)
    # The section of every backend is checked, not only that of the backend that runs the job.
    said["settings"] = {
        name: read_settings(section, known)
        for name in (kinds if top.left else ())  # else no backend but this one is imported
        if (known := kinds[name].settings) and (section := top.section(name)) is not None
    }
    top.finish()
    try:
        return Cluster(hosts=hosts, backend=kind.name, source=path, **said)
    except LaunchError as error:
        raise top.error(hosts_node, str(error)) from None


def _hosts(top: Section, hosts_node: Node) -> tuple[Host, ...]:
    """Reads the list of hosts; settings at the top of the file apply to each of them."""
    is_said = "python" in top.left
    if not isinstance(hosts_node, yaml.SequenceNode) or not hosts_node.value:
        raise top.error(hosts_node, "hosts must be a list with at least one host (`- node0`)")
    base = _settings(top, nameless_host())
    hosts = []
    for position, node in enumerate(hosts_node.value):
        layout = (("worker" if position else "master", 1), ("ps", 1))
        hosts.append(_host(top, node, replace(base, roles=layout), is_said))
    return tuple(hosts)


def _dealt_out(top: Section, tasks_node: Node, kind: Kind) -> tuple[Host, ...]:
    """Distributes the tasks over hosts that a scheduler will choose."""
    base = _settings(top, nameless_host())
    counts = dict(_counts(Section(top.path, tasks_node, "tasks")))
    nodes = top.take("nodes", whole(1, 10_000), None)
    try:
        return chosen_hosts(kind, counts, nodes, base)
    except LaunchError as error:
        raise top.error(tasks_node, str(error)) from None


def _host(top: Section, node: Node, base: Host, has_python: bool) -> Host:
    """Reads one host: a name, with or without `user@`, or a mapping.

    Args:
      top: the file.
      node: the host's node.
      base: the settings that the host has if it names no others.
      has_python: whether the file names the Python of all hosts.
    """
    if isinstance(node, yaml.ScalarNode):
        return top.parse("host", node, lambda word: named(base, word))
    section = Section(top.path, node, "a host")
    name = section.take("name", host_name, "")
    if not name:
        raise section.error(node, "a host needs a `name`, as ssh knows it")
    roles = section.section("roles")
    host = replace(
        _settings(section, base, has_python),
        name=name,
        address=section.take("address", host_name, name),
        roles=base.roles if roles is None else _counts(roles),
    )
    section.finish()
    return host


def _settings(section: Section, base: Host, has_python: bool = False) -> Host:
    """Reads the settings that the file can give for one host, or at its top for all hosts."""
    said = read_fields(section, Host)
    is_elsewhere = said.get("workdir", base.workdir) != base.workdir
    is_ours = base.python == default_python() and not os.path.isabs(base.python)
    if is_elsewhere and is_ours and not has_python:
        base = replace(base, python="python3")  # The venv is only in this checkout.
    return replace(base, **said)


def _counts(roles: Section) -> tuple[tuple[str, int], ...]:
    """Reads the number of tasks of each type."""
    found = [(role, roles.take(role, whole(0, 1000), 0)) for role in TASK_TYPES]
    roles.finish()
    if not any(count for _, count in found):
        raise roles.error(roles.node, f"{roles.name} must name a task, such as {LEADS[0]}: 1")
    return tuple((role, count) for role, count in found if count)
