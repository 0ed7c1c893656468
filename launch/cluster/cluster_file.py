"""Reads a cluster from a YAML file and checks it strictly; docs/launch.md shows the keys."""

import json
import os
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Optional

import yaml

from launch.cluster.host_list import chosen_hosts, expand, is_this_machine, nameless_host
from launch.cluster.model import CHIEFS, TASK_TYPES, BackendFacts, Cluster, Host, Limits, host_name
from launch.cluster.yaml_section import Node, Section, keys_of, matching, read, read_fields, whole
from launch.errors import LaunchError

Backends = Mapping[str, BackendFacts]  # by their names


def read_cluster(path: str, backends: Backends, on: Optional[str] = None) -> Cluster:
    """Reads and checks a cluster file.

    Args:
      path: the path of the file.
      backends: name -> backend, for every one that the file may name.
      on: the name of the backend to use instead of the one in the file.

    Raises:
      LaunchError: the file cannot be read or is wrong; the message about a wrong key or value
        begins with `lab.yaml:12:`.
    """
    top = read(path)
    is_known = matching("|".join(map(re.escape, backends)), f"one of {', '.join(backends)}")
    own = top.take("backend", is_known, "ssh")
    backend = backends[on or own]
    key = "tasks" if backend.chooses_hosts else "hosts"
    hosts_node = top.node_of(key)
    if hosts_node is None:
        raise top.error(top.node, f"{key} is missing; `init` writes a file that has it")
    if not backend.chooses_hosts:
        hosts = _hosts(top, hosts_node)
    elif "user" in top.left:
        rule = f"user is for logins by ssh; {backend.name} has none, so leave it out"
        raise top.error(top.left["user"][0], rule)
    else:
        counts = dict(_counts(Section(top.path, hosts_node, "tasks")))
        nodes = top.take("nodes", whole(1, 10_000), None)
        with top.at(hosts_node):
            hosts = chosen_hosts(backend, counts, nodes, _placed(read_fields(top, Host)))
    if backend.is_this_machine and (len(hosts) > 1 or not is_this_machine(hosts[0].address)):
        rule = f"{backend.name} runs all tasks on this machine; list localhost alone, or run on ssh"
        raise top.error(hosts_node, rule)
    said = {"ports": backend.default_ports, **read_fields(top, Cluster)}
    # The section of every backend is checked, not only that of the backend that runs the job.
    said |= _sections(top, backends, Limits(), {})
    top.finish()
    with top.at(hosts_node):
        return Cluster(hosts=hosts, backend=backend.name, source=path, **said)


def with_setting(cluster: Cluster, pair: str, backends: Backends) -> Cluster:
    """Returns the cluster with another value of one key of a cluster file.

    Args:
      cluster: the cluster.
      pair: the key and its value, `slurm.partition=gpu`; a list is written as `[a, b]`.
      backends: name -> backend.

    Raises:
      LaunchError: there is no such key, or its value is wrong.
    """
    keys, equals, text = pair.partition("=")
    if not keys or not equals:
        raise LaunchError(f"--set must be KEY=VALUE, such as slurm.partition=gpu, got {pair!r}")
    if keys.partition(".")[0] in ("backend", "hosts", "tasks", "nodes"):
        flags = "--on, --hosts, --hostfile, --workers, --ps and --nodes"
        raise LaunchError(f"--set {pair}: {flags} say where tasks run, or the cluster file")
    node: Node = yaml.ScalarNode("", text)
    if text.startswith("["):
        try:
            node = yaml.compose(text, Loader=yaml.SafeLoader)
        except yaml.YAMLError:
            raise LaunchError(f"--set {pair}: not a list as in YAML, such as [a, b]") from None
    for key in reversed(keys.split(".", 2)):  # A label may have dots of its own.
        node = yaml.MappingNode("", [(yaml.ScalarNode("", key), node)])
    top = Section(f"--set {keys}", node, "a cluster file")
    said, of_hosts = _added(cluster, read_fields(top, Cluster)), read_fields(top, Host)
    said |= _sections(top, backends, cluster.limits, cluster.settings)
    top.finish()
    hosts = tuple(replace(host, **of_hosts) for host in cluster.hosts)
    return replace(cluster, hosts=hosts, **said)


def _sections(
    top: Section, backends: Backends, limits: Limits, settings: Mapping[str, Any]
) -> dict[str, Any]:
    """Returns the limits and settings of a cluster as the sections of a file change them."""
    found: dict[str, Any] = {"limits": limits, **settings}
    for name in [name for name in ("limits", *backends) if name in top.left]:
        kind = Limits if name == "limits" else backends[name].settings
        if kind is not None and (section := top.section(name)) is not None:
            said, before = read_fields(section, kind), found.get(name)
            found[name] = replace(before, **_added(before, said)) if before else kind(**said)
            section.finish()
    return {"limits": found.pop("limits"), "settings": found}


def _added(before: object, said: dict[str, Any]) -> dict[str, Any]:
    """Returns new values of a dataclass's fields; what is a mapping is added to that before."""
    mappings = {f.name for f in keys_of(type(before)).values() if f.metadata["key_rule"]}
    pairs = {name: dict(getattr(before, name)) for name in mappings & said.keys()}
    added = {name: tuple({**old, **dict(said[name])}.items()) for name, old in pairs.items()}
    return {**said, **added}


def _hosts(top: Section, hosts_node: Node) -> tuple[Host, ...]:
    """Reads the list of hosts; settings at the top of the file apply to each of them."""
    if not isinstance(hosts_node, yaml.SequenceNode) or not hosts_node.value:
        raise top.error(hosts_node, "hosts must be a list with at least one host (`- node0`)")
    shared = read_fields(top, Host)
    hosts: list[Host] = []
    for node in hosts_node.value:
        for word in _words(top, node):
            layout = (("worker" if hosts else "master", 1), ("ps", 1))
            hosts.append(_host(top, word, {**shared, "roles": layout}))
    return tuple(hosts)


def _words(top: Section, node: Node) -> list[Node]:
    """Returns a node for each host of `- node[01-04]`."""
    if not isinstance(node, yaml.ScalarNode) or "[" not in node.value[1:]:
        return [node]
    with top.at(node):
        names = expand(node.value)
    return [yaml.ScalarNode(node.tag, name, node.start_mark, node.end_mark) for name in names]


def _host(top: Section, node: Node, shared: dict[str, Any]) -> Host:
    """Reads one host: a name, with or without `user@`, or a mapping with settings of its own."""
    if isinstance(node, yaml.ScalarNode):
        return top.parse("host", node, _placed(shared).named)
    section = Section(top.path, node, "a host")
    name = section.take("name", host_name, "")
    if not name:
        raise section.error(node, "a host needs a `name`, as ssh knows it")
    address = section.take("address", host_name, name)
    said = {**shared, "name": name, "address": address, **read_fields(section, Host)}
    roles = section.section("roles")
    if roles is not None:
        said["roles"] = _counts(roles)
    section.finish()
    return _placed(said)


def _placed(said: dict[str, Any]) -> Host:
    """Returns a host with the given fields, and defaults for the others."""
    base = nameless_host()
    is_elsewhere = said.get("workdir", base.workdir) != base.workdir
    if is_elsewhere and not os.path.isabs(base.python):
        base = replace(base, python="python3")  # The venv is only in this checkout.
    return replace(base, **said)


def _counts(roles: Section) -> tuple[tuple[str, int], ...]:
    """Reads the number of tasks of each type."""
    whole_number = whole(0, 1000)
    found = [(kind, count) for kind in TASK_TYPES if (count := roles.take(kind, whole_number, 0))]
    roles.finish()
    if not found:
        raise roles.error(roles.node, f"{roles.name} must name a task, such as {CHIEFS[0]}: 1")
    return tuple(found)


def as_text(cluster: Cluster, keys: Mapping[str, Any]) -> str:
    """Returns a cluster on chosen hosts as the text of a cluster file, one key on each line.

    It has every key that a file can set for hosts and tasks, but `environment`, whose values may be
    secrets.

    Args:
      cluster: the cluster.
      keys: further keys of the file.
    """
    counts = {kind: cluster.count(kind) for kind in TASK_TYPES if cluster.count(kind)}
    content = {"backend": cluster.backend, "tasks": counts, **keys}
    content |= {**_said(cluster.hosts[0]), **_said(cluster), "limits": _said(cluster.limits)}
    content.pop("environment", None)
    # JSON is valid YAML, and json.dumps writes each value on one line.
    lines = (f"{key}: {json.dumps(value, ensure_ascii=False)}" for key, value in content.items())
    return "\n".join(lines)


def _said(settings: object) -> dict[str, Any]:
    """Returns the keys with which a file sets the fields of a dataclass, as `read_fields` reads."""
    found = {}
    for key, known in keys_of(type(settings)).items():
        value = getattr(settings, known.name)
        if value != known.default or not isinstance(value, (type(None), bool, tuple)):
            is_plain = isinstance(value, (str, int, float, tuple))
            found[key] = value if is_plain else "off" if value is None else str(value)
    return found
