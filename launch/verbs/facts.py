"""Finds problems in the facts that a check collects, and makes the rows of its table."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Optional

from cifar10_program import IS_INSTALLED, PACKAGE
from launch.backends.base import ContainerNeeds
from launch.cluster.model import Host
from launch.cluster.tasks import PROGRAM, SCRIPT, Job

_TENSORFLOW = "install the same everywhere: pip install --require-hashes -r requirements.lock"
_SETUP = "python -m launch setup"
SETUP_PYTHON = ".venv/bin/python"  # of the venv that setup makes
_IMAGE = "copy the same image to all hosts: docker save, docker load, or a registry"
_LEAST_DISK = 1 << 30
_MOST_CLOCK_SECS = 2.0
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
      clock_secs: the seconds by which the host's clock is ahead of the launcher's.
      not_dialled: (address, port, error) of each port on other hosts that it could not connect to.
      public: its public addresses.
    """

    unreachable: Optional[str] = None
    found: Mapping[str, Any] = field(default_factory=dict)
    clock_secs: float = 0.0
    not_dialled: Sequence[Sequence[Any]] = ()
    public: Sequence[str] = ()


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
    found = facts.found
    if containers is None:
        way_out = _way_out(job)
        wrong, place, key = _of_python(job, host, found), job.folder("data"), "--data-dir"
    else:
        way_out, key = "", f"`{containers.data_key}`"
        wrong, place = [], containers.data or f"{host.workdir}/data"
        if found["engine_error"] is not None:
            wrong.append(found["engine_error"])
        elif found["image"] is None:
            wrong.append(f"it has no image {containers.image}; {_IMAGE}")
    if host.trains and found["data"] is None:
        copy = f"copy them: {way_out}" if way_out else "prepare or copy them"
        wrong.append(f"no records in {place}; {copy}, or name {key}")
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
    if abs(facts.clock_secs) > _MOST_CLOCK_SECS:
        ahead = f"{facts.clock_secs:+.1f} s"
        wrong.append(f"its clock differs by {ahead} from the launcher's; synchronize it (NTP)")
    return wrong


def _of_python(job: Job, host: Host, found: Mapping[str, Any]) -> list[str]:
    wrong, way_out = [], _way_out(job)
    if found["code"] is None and SCRIPT in PROGRAM:
        first = f"{way_out}, " if way_out else ""
        put = f"put it there: {first}or name its folder with --workdir"
        wrong.append(f"{host.workdir} has no {SCRIPT}; {put}")
    elif not found["has_workdir"]:
        wrong.append(f"{host.workdir} does not exist; make it, or name another with --workdir")
    elif found["code"] is None:
        wrong.append(f"{host.python} has no {PACKAGE}; install the same version there")
    if not found["has_workdir"]:
        return wrong  # a Python may be missing for the same reason
    if found["python"] is None:
        make = f", or make it: {way_out}" if way_out else ""
        choose = f"choose the training's Python with --python{make}"
        wrong.append(f"{found['python_error']}; {choose}")
    elif found["tensorflow"] is None:
        install = f"install it: {way_out}{_venv(job, host)}" if way_out else _TENSORFLOW
        wrong.append(f"{host.python} has no TensorFlow; choose with --python, or {install}")
    return wrong


def _way_out(job: Job) -> str:
    """Returns the command that brings code, packages and records to hosts; "" if none does."""
    return _SETUP if job.cluster.backend == "ssh" and not IS_INSTALLED else ""


def _venv(job: Job, host: Host) -> str:
    """Returns what to add so that `setup` makes a venv, where the host's own Python is named."""
    if "/" in host.python:
        return ""
    if job.cluster.source.startswith("--"):
        return f" --python {SETUP_PYTHON}"
    return f", with `python: {SETUP_PYTHON}` in the cluster file"


def _differences(job: Job, facts: Mapping[str, Facts]) -> list[str]:
    """Returns a message for each fact in which a host differs from the first host that has it."""
    wrong = []
    same = f"have the same everywhere: {_SETUP}" if _way_out(job) else ""
    for key, name, mend in (
        ("image", "image", _IMAGE),
        ("code", "code", same or "update it there"),
        ("python", "Python", _TENSORFLOW),
        ("tensorflow", "TensorFlow", same or _TENSORFLOW),
        ("data", "data", same or "copy the records of the first one"),
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


def columns(containers: Optional[ContainerNeeds] = None) -> list[str]:
    """Returns the names of the table's columns."""
    inside = ["Python", "TensorFlow", "code"] if containers is None else ["engine", "image"]
    return ["host", "reached", *inside, "data", "ports", "peers", "GPUs", "disk", "clock"]


def cells(host: Host, facts: Facts, containers: Optional[ContainerNeeds] = None) -> list[str]:
    """Returns a host's row of the table; only its first cells if the host could not be asked."""
    if facts.unreachable is not None:
        return [host.name, "no"]
    found = facts.found
    if containers is None:
        inside = [found[key] or "missing" for key in ("python", "tensorflow", "code")]
    else:
        inside = ["no" if found["engine_error"] else "yes", found["image"] or "missing"]
    taken = ",".join(str(port) for port, reason in found["ports"] if reason)
    return [
        host.name,
        "yes",
        *inside,
        found["data"] or ("missing" if host.trains else "not needed"),
        f"{taken} taken" if taken else "free",
        f"{len(facts.not_dialled)} unreachable" if facts.not_dialled else "all",
        str(len(found["gpus"])),
        f"{found['disk_free'] / (1 << 30):.0f} GiB",
        f"{facts.clock_secs:+.1f} s",
    ]


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
        tasks, public = [task for task in serving if task.host is host], facts[host.name].public
        ports = ", ".join(str(task.port) for task in tasks if task.port is not None)
        where = f"port{'s' * (',' in ports)} {ports}" if ports else "free ports"
        if tasks and public:
            reached = f"{', '.join(public)} may be reached from the internet, on {where}"
            found.append(f"{host.name}: {reached}; {_OPEN}")
    return found
