"""Finds problems in the facts that a check collects, and makes the rows of its table."""

import contextlib
import ipaddress
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Optional

from cifar10_program import IS_INSTALLED, PACKAGE
from launch.backends.base import ContainerNeeds
from launch.cluster.model import Host
from launch.cluster.tasks import PROGRAM, SCRIPT, Job

_TENSORFLOW = "install the same everywhere: pip install --require-hashes -r requirements.lock"
_SETUP = "python -m launch setup"
_IMAGE = "copy the same image to all hosts: docker save, docker load, or a registry"
_LEAST_DISK = 1 << 30
_OPEN = (
    "TensorFlow's servers admit whoever reaches them: admit only the cluster's hosts there with a "
    "firewall (`ports:` sets the ports), or use hosts with private addresses alone"
)


@dataclass
class Facts:
    """The facts about one host.

    Attributes:
      unreachable: why the host did not answer; None if it did.
      found: the agent's answer; see launch.agent.host_facts.look.
      not_dialled: (address, port, error) of each port on other hosts that it could not connect to.
    """

    unreachable: Optional[str] = None
    found: Mapping[str, Any] = field(default_factory=dict)
    not_dialled: Sequence[Sequence[Any]] = ()


def problems(
    job: Job, facts: Mapping[str, Facts], containers: Optional[ContainerNeeds] = None
) -> list[str]:
    """Returns a message for each problem; most of them say how to solve it.

    Args:
      job: the job that is to run.
      facts: host name -> the facts about that host.
      containers: what the hosts need for containers; None if tasks are plain processes.
    """
    found: list[str] = []
    for host in job.cluster.hosts:
        theirs = facts[host.name]
        if theirs.unreachable is not None:
            found.append(theirs.unreachable)
        else:
            found += [f"{host.name}: {one}" for one in _of_one(job, host, theirs, containers)]
    return found + _differences(job, facts)


def _of_one(job: Job, host: Host, facts: Facts, containers: Optional[ContainerNeeds]) -> list[str]:
    found, way_out = facts.found, _way_out(job)
    if containers is None:
        wrong, place, key = _of_python(host, found, way_out), job.folder("data"), "--data-dir"
    else:
        wrong, way_out, key = [], "", f"`{containers.data_key}`"
        place = containers.data or f"{host.workdir}/data"
        if found["engine_error"] is not None:
            wrong.append(found["engine_error"])
        elif found["image"] is None:
            wrong.append(f"it has no image {containers.image}; {_IMAGE}")
    if host.trains and found["data"] is None:
        wrong.append(f"no records in {place}; copy them there{way_out}, or name {key}")
    wrong += [reason for _, reason in found["ports"] if reason]
    wrong += [
        f"cannot reach {address} port {port}: {why}; look at firewalls and at `address:`"
        for address, port, why in facts.not_dialled
    ]
    wanted = 1 + max((n for task in job.on(host) for n in task.devices.gpus or ()), default=-1)
    if wanted > len(found["gpus"]):
        have = len(found["gpus"])
        wrong.append(f"needs {wanted} GPUs, but has {have}; see gpus, gpus_per_task")
    if found["disk_free"] < _LEAST_DISK:
        wrong.append(f"{found['disk_free'] >> 20} MiB free at {host.workdir}; make room for 1 GiB")
    return wrong


def _of_python(host: Host, found: Mapping[str, Any], way_out: str) -> list[str]:
    if not found["has_workdir"]:  # then a Python may be missing for the same reason
        return [f"{host.workdir} does not exist; make it{way_out}, or name another with --workdir"]
    wrong = []
    if found["code"] is None and SCRIPT in PROGRAM:
        mend = f"put it there{way_out}, or name its folder with --workdir"
        wrong.append(f"{host.workdir} has no {SCRIPT}; {mend}")
    elif found["code"] is None:
        wrong.append(f"{host.python} has no {PACKAGE}; install the same version there")
    if found["python"] is None:
        wrong.append(f"{found['python_error']}; choose another with --python, or make it{way_out}")
    elif found["tensorflow"] is None:
        mend = f"install it{way_out}" if way_out else _TENSORFLOW
        wrong.append(f"{host.python} has no TensorFlow; choose another with --python, or {mend}")
    return wrong


def _way_out(job: Job) -> str:
    """Returns the command that brings code, packages and records to hosts; "" if none does."""
    return f": {_SETUP}" if job.cluster.backend == "ssh" and not IS_INSTALLED else ""


def _differences(job: Job, facts: Mapping[str, Facts]) -> list[str]:
    """Returns a message for each fact in which a host differs from the first host that has it."""
    wrong = []
    same = f"have the same everywhere{_way_out(job)}"
    for key, name, mend in (
        ("image", "image", _IMAGE),
        ("code", "code", same),
        ("python", "Python", _TENSORFLOW),
        ("tensorflow", "TensorFlow", same),
        ("data", "data", same),
    ):
        values = [
            (host.name, facts[host.name].found[key])
            for host in job.cluster.hosts
            if (key != "data" or host.trains) and facts[host.name].found.get(key) is not None
        ]
        wrong += [
            f"{host_name}: {name} is {value}, but {values[0][1]} on {values[0][0]}; {mend}"
            for host_name, value in values[1:]
            if value != values[0][1]
        ]
    return wrong


def cells(host: Host, facts: Facts, containers: Optional[ContainerNeeds] = None) -> dict[str, str]:
    """Returns a host's row of the table, by title; less if the host could not be asked."""
    if facts.unreachable is not None:
        return {"host": host.name, "reached": "no"}
    found = facts.found
    inside = ("python", "tensorflow", "code") if containers is None else ("image",)
    return {
        "host": host.name,
        "reached": "yes",
        **{key: found[key] or "missing" for key in inside},
        "data": found["data"] or ("missing" if host.trains else "not needed"),
        "GPUs": str(len(found["gpus"])),
        "disk": f"{found['disk_free'] >> 30} GiB",
    }


def warnings(job: Job, facts: Mapping[str, Facts]) -> list[str]:
    """Returns a message for each host whose tasks the internet may reach.

    Whether a firewall is in the way cannot be known, so these are no problems.

    Args:
      job: the job that is to run.
      facts: host name -> the facts about that host.
    """
    serving = [task for task in job.tasks if task.task_type != "evaluator"]
    if len(serving) < 2:
        return []  # a trainer alone starts no server
    found = []
    for host in job.cluster.hosts:
        tasks = [task for task in serving if task.host is host]
        public = dict.fromkeys([*facts[host.name].found.get("public", ()), *_public(host.address)])
        ports = ", ".join(str(task.port) for task in tasks if task.port is not None)
        where = f"port{'s' * (',' in ports)} {ports}" if ports else "free ports"
        if tasks and public:
            reached = f"{', '.join(public)} may be reached from the internet, on {where}"
            found.append(f"{host.name}: {reached}; {_OPEN}")
    return found


def _public(address: str) -> list[str]:
    """Returns the address if it is one that the internet may reach; a name is not looked up."""
    with contextlib.suppress(ValueError):
        return [address] if ipaddress.ip_address(address).is_global else []
    return []
