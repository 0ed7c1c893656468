"""A cluster from a YAML file, checked strictly; docs/launch.md shows all that it can say."""

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Optional

import yaml

from launch.cluster import yaml_section as rules
from launch.cluster.host_list import ROOT, default_python, on_chosen_hosts, parse_name
from launch.cluster.kind import Kind
from launch.cluster.model import (
    COMMAND_NAME,
    FIRST_PORT,
    HOST_NAME,
    LEADS,
    TASK_TYPES,
    USER_NAME,
    Cluster,
    Host,
    Limits,
    Ports,
    check_variable,
)
from launch.cluster.yaml_section import Node, Section
from launch.errors import LaunchError

_PATH = rules.matching(re.compile(r"[^\0\r\n]+"), "a path on one line")
_USER = rules.matching(USER_NAME, "a user name of letters, digits, . _ -")
_HOST = rules.matching(HOST_NAME, "a host name or address of letters, digits, . _ : -")
_COMMAND = rules.matching(COMMAND_NAME, "a command or path of letters, digits, / . _ + -")


def read_cluster(path: str, kinds: Mapping[str, Kind]) -> Cluster:
    """Reads and checks the file.

    Args:
      path: the file.
      kinds: the backends that there are, by name.

    Raises:
      LaunchError: `lab.yaml:12: ...`, with the value, the rule and the way out.
    """
    top = rules.read(path)
    kind = _kind(top, kinds)
    hosts_node = top.node_of("tasks" if kind.chooses_hosts else "hosts")
    if hosts_node is None:
        raise top.error(
            top.node,
            f"tasks is missing; {kind.name} needs their counts (`tasks: {{master: 1, ps: 1}}`)"
            if kind.chooses_hosts
            else "hosts is missing; list the machines under it",
        )
    hosts = _dealt_out(top, hosts_node, kind) if kind.chooses_hosts else _hosts(top, hosts_node)
    environment, passed = _environment(top)
    ports = top.take("ports", _ports, kind.default_ports)
    limits = _limits(top.section("limits"))
    restarts = top.take("restarts", rules.whole(0, 1_000_000), 0)
    gpus_per_task = top.take("gpus_per_task", rules.whole(0, 64), None)
    sync = top.take("sync", rules.yes_or_no, False)
    settings = _backend_settings(top, kinds)
    top.finish()
    try:
        return Cluster(
            hosts=hosts,
            backend=kind.name,
            ports=ports,
            environment=environment,
            passed=passed,
            limits=limits,
            restarts=restarts,
            gpus_per_task=gpus_per_task,
            sync=sync,
            source=path,
            settings=settings,
        )
    except LaunchError as error:
        raise top.error(hosts_node, str(error)) from None


def _kind(top: Section, kinds: Mapping[str, Kind]) -> Kind:
    names = re.compile("|".join(map(re.escape, kinds)))
    return kinds[top.take("backend", rules.matching(names, f"one of {', '.join(kinds)}"), "ssh")]


def _hosts(top: Section, hosts_node: Node) -> tuple[Host, ...]:
    """Reads the hosts; what stands at the top of the file goes for each of them."""
    if not isinstance(hosts_node, yaml.SequenceNode) or not hosts_node.value:
        raise top.error(hosts_node, "hosts must be a list with at least one host (`- node0`)")
    base = _settings(top, Host("", "", (), str(ROOT), python=default_python()))
    with_roles = any(_has_roles(node) for node in hosts_node.value)
    hosts = []
    for position, node in enumerate(hosts_node.value):
        layout = (("worker" if position else "master", 1), ("ps", 1))
        host = _host(top, node, replace(base, roles=layout))
        if with_roles and not _has_roles(node):
            raise top.error(
                node, f"host {host.name} has no roles, but others have; say what it runs"
            )
        hosts.append(host)
    return tuple(hosts)


def _dealt_out(top: Section, tasks_node: Node, kind: Kind) -> tuple[Host, ...]:
    """Hosts that a scheduler will choose, with the tasks dealt out to them."""
    base = _settings(top, Host("", "", (), str(ROOT), python=default_python()))
    counts = dict(_counts(Section(top.path, tasks_node, "tasks")))
    nodes = top.take("nodes", rules.whole(1, 10_000), None)
    try:
        cluster = on_chosen_hosts(kind, counts, nodes)
    except LaunchError as error:
        raise top.error(tasks_node, str(error)) from None
    return tuple(replace(base, name=h.name, address=h.name, roles=h.roles) for h in cluster.hosts)


def _has_roles(node: Node) -> bool:
    return isinstance(node, yaml.MappingNode) and any(k.value == "roles" for k, _ in node.value)


def _host(top: Section, node: Node, base: Host) -> Host:
    """One host: a word, or a mapping."""
    if isinstance(node, yaml.ScalarNode):
        user, name = top.parse("host", node, parse_name)
        return replace(base, name=name, address=name, user=user or base.user)
    section = Section(top.path, node, "a host")
    name = section.take("name", _HOST, "")
    if not name:
        raise section.error(node, "a host needs a `name`, as ssh knows it")
    host = replace(
        _settings(section, base),
        name=name,
        address=section.take("address", _HOST, name),
        roles=_roles(section) or base.roles,
    )
    section.finish()
    return host


def _settings(section: Section, base: Host) -> Host:
    """What can be said of one host, or at the top of all."""
    workdir = section.take("workdir", _PATH, base.workdir)
    python = base.python
    if workdir != base.workdir and python == default_python():
        python = "python3"  # This checkout's venv is in this checkout.
    return replace(
        base,
        user=section.take("user", _USER, base.user),
        python=section.take("python", _PATH, python),
        workdir=workdir,
        agent_python=section.take("agent_python", _COMMAND, base.agent_python),
        gpus=section.take("gpus", rules.whole(0, 64), base.gpus),
    )


def _roles(section: Section) -> tuple[tuple[str, int], ...]:
    roles = section.section("roles")
    return () if roles is None else _counts(roles)


def _counts(roles: Section) -> tuple[tuple[str, int], ...]:
    """Task types and how many of each."""
    found = [(role, roles.take(role, rules.whole(0, 1000), 0)) for role in TASK_TYPES]
    roles.finish()
    if not any(count for _, count in found):
        raise roles.error(roles.node, f"{roles.name} must name a task, such as {LEADS[0]}: 1")
    return tuple((role, count) for role, count in found if count)


def _ports(text: str) -> Ports:
    rule = f"must be a first port, a range or `free` ({FIRST_PORT}, 2222-2299), got {text!r}"
    if text == "free":
        return Ports(low=None)
    match = re.fullmatch(r"([0-9]{1,5})(?:-([0-9]{1,5}))?", text)
    if not match:
        raise LaunchError(rule)
    low, high = int(match[1]), int(match[2]) if match[2] else None
    if not 1 <= low <= (high or 65_534) <= 65_535:
        raise LaunchError(f"{rule}; ports go from 1 to 65535, the lower one first")
    return Ports(low, high)


def _limits(section: Optional[Section]) -> Limits:
    if section is None:
        return Limits()
    plain = Limits()
    limits = Limits(
        start_secs=section.take("start_secs", rules.seconds_or_off, plain.start_secs),
        idle_secs=section.take("idle_secs", rules.seconds_or_off, plain.idle_secs),
        grace_secs=section.take("grace_secs", rules.seconds, plain.grace_secs),
        stop_secs=section.take("stop_secs", rules.seconds, plain.stop_secs),
        lease_secs=section.take("lease_secs", rules.seconds, plain.lease_secs),
    )
    section.finish()
    return limits


def _backend_settings(top: Section, kinds: Mapping[str, Kind]) -> dict[str, Any]:
    """Reads the backends' own sections, whichever of them the job will run on."""
    found = {}
    for name, kind in kinds.items():
        if kind.read_settings is not None:
            section = top.section(name)
            if section is not None:
                found[name] = kind.read_settings(section)
    return found


def _environment(top: Section) -> tuple[tuple[tuple[str, str], ...], tuple[str, ...]]:
    """Reads `environment` (values as they stand, never as YAML types) and `pass_environment`."""
    section = top.section("environment")
    values = []
    for name, node in (section.rest() if section else {}).items():
        top.parse("environment", _named(node, name), check_variable)
        values.append((name, top.parse(name, node, str)))
    passed = [
        top.parse("pass_environment", node, check_variable)
        for node in top.items("pass_environment")
    ]
    return tuple(values), tuple(passed)


def _named(node: Node, name: str) -> Node:
    """A scalar `name` where `node` stands: the key, for checking."""
    return yaml.ScalarNode("tag:yaml.org,2002:str", name, node.start_mark, node.end_mark)
