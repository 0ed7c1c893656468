"""Asks all hosts what they have, and says what is missing or differs, most of it with the mend."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Optional

from cifar10_program import IS_INSTALLED, PACKAGE
from launch.agent.protocol import Message
from launch.cluster.host_list import SETUP_PYTHON
from launch.cluster.model import Host
from launch.cluster.tasks import PACKAGES, Job, script_of
from launch.connect.agent_client import Questions
from launch.connect.link import Transport

_SETUP = ": python -m launch setup"
_IMAGE = "copy the same image to all hosts: docker save, docker load, or a registry"
_COMPARED = ("image", "code", "python", "tensorflow", "data")  # the same on all hosts
_LEAST_DISK = 1 << 30

# What a host's agent has found, see launch.agent.host_facts.probe, with `failures`: (address, port,
# error) of each port of other hosts that it could not connect to; or why it is `unreachable`.
Facts = Mapping[str, Any]


@dataclass(frozen=True)
class HostNeeds:
    """What a host needs to run tasks.

    Attributes:
      records: the host's folder with the training's records, relative to the working directory.
      engine: the container engine's command, such as `docker`; None for tasks that are processes.
      image: the name of the image, if there is an engine.
      data: the data folder that the cluster's description names for an engine; None if it names
        none.
    """

    records: str
    engine: Optional[str] = None
    image: Optional[str] = None
    data: Optional[str] = None


@dataclass(frozen=True)
class Checked:
    """What a check has found.

    Attributes:
      hosts: host name -> the facts about it.
      problems: a message for each problem; a job with one would fail.
      said: lines about what else is known, such as a scheduler's answer.
    """

    hosts: Mapping[str, Facts] = field(default_factory=dict)
    problems: Sequence[str] = ()
    said: Sequence[str] = ()

    def lines(self) -> Iterator[str]:
        """Yields the lines for people."""
        for name, found in self.hosts.items():
            if "unreachable" not in found:
                same = [f", {key} {found[key]}" for key in _COMPARED if found.get(key) is not None]
                disk = f"{found['disk_free'] >> 30} GiB of disk"
                yield f"{name}: {len(found['gpus'])} GPUs, {disk}{''.join(same)}"
        yield from self.said
        yield from (f"problem: {problem}" for problem in self.problems)
        if self.hosts and not self.problems:
            yield "everything is in place"


def examine(job: Job, needs: HostNeeds, transport: Transport, stops: Sequence[int]) -> Checked:
    """Asks all hosts in parallel for facts, and for connections to each other's ports.

    Args:
      job: the job that is to run.
      needs: what its hosts need.
      transport: how the launcher reaches the hosts.
      stops: a list to which each signal that asks for the end is added; one closes the connections,
        and raises SystemExit (128 + n).
    """
    script, records = script_of(job.cluster), needs.records

    def probe(host: Host) -> Message:
        return {
            "do": "probe",
            "cwd": host.workdir,
            "python": host.python if needs.engine is None else None,
            "code": (script, *PACKAGES) if script else (),
            "engine": needs.engine,
            "image": needs.image,
            "data": records if host.trains and "://" not in records else None,
            "ports": [task.port for task in job.on(host) if task.port is not None],
        }

    def connect(host: Host) -> Message:
        targets = [
            (other.address, port)
            for other in reached
            # The tasks of one host reach each other by its address, too.
            if other is not host or len(probed.found[other.name]["ports"]) > 1
            for port, why_not in probed.found[other.name]["ports"]
            if why_not is None
        ]
        return {"do": "check", "targets": targets}

    with Questions(transport, stops) as questions:
        probed = questions.ask(job.cluster.hosts, probe)
        reached = [host for host in job.cluster.hosts if host.name in probed.found]
        connected = questions.ask(reached, connect)
    failed = {**probed.failed, **connected.failed}
    facts: dict[str, Facts] = {name: {"unreachable": why} for name, why in failed.items()}
    for name, answer in connected.found.items():
        facts[name] = {**probed.found[name], **answer}
    is_remote = "://" in records
    said = [f"{records}: not looked at; the tasks read it by themselves"] if is_remote else []
    return Checked(facts, problems(job, facts, needs), said)


def problems(job: Job, facts: Mapping[str, Facts], needs: HostNeeds) -> list[str]:
    """Returns a message for each problem; most of them say how to solve it.

    Args:
      job: the job that is to run.
      facts: host name -> the facts about that host.
      needs: what its hosts need.
    """
    found: list[str] = []
    for host in job.cluster.hosts:
        theirs = facts[host.name]
        if "unreachable" in theirs:
            found.append(theirs["unreachable"])
        else:
            found += [f"{host.name}: {wrong}" for wrong in _of_host(job, host, theirs, needs)]
    return found + _differences(job, facts)


def _of_host(job: Job, host: Host, found: Facts, needs: HostNeeds) -> list[str]:
    wrong, mend, folder, key = [], _mend(job), needs.records, "--data-dir"
    if needs.engine is None:
        wrong += _of_python(job, host, found)
    else:
        mend, folder, key = "", needs.data or f"{host.workdir}/data", "`docker: {data: }`"
        if found["engine_error"] is not None:
            wrong.append(found["engine_error"])
        elif found["image"] is None:
            wrong.append(f"it has no image {needs.image}; {_IMAGE}")
    if host.trains and found["data"] is None and "://" not in folder:
        wrong.append(f"no records in {folder}; copy them there{mend}, or name {key}")
    wrong += [reason for _, reason in found["ports"] if reason]
    failures: dict[tuple[str, str], list[str]] = {}
    for address, port, why in found.get("failures", ()):
        failures.setdefault((address, why), []).append(str(port))
    wrong += [
        f"cannot reach {address} port {', '.join(numbers)}: {why}; look at firewalls and `address:`"
        for (address, why), numbers in failures.items()
    ]
    wanted = 1 + max((n for task in job.on(host) for n in task.devices.gpus or ()), default=-1)
    if wanted > len(found["gpus"]):
        have = len(found["gpus"])
        wrong.append(f"needs {wanted} GPUs, but has {have}; see gpus, gpus_per_task")
    if found["disk_free"] < _LEAST_DISK:
        wrong.append(f"{found['disk_free'] >> 20} MiB free at {host.workdir}; make room for 1 GiB")
    return wrong


def _of_python(job: Job, host: Host, found: Facts) -> list[str]:
    by_setup, script = _mend(job), script_of(job.cluster)
    if not found["has_workdir"]:  # then a Python may be missing for the same reason
        return [f"{host.workdir} does not exist; make it{by_setup}, or name another with --workdir"]
    wrong = []
    if found["code"] is None and script:
        mend = f"put it there{by_setup}, or name its folder with --workdir"
        wrong.append(f"{host.workdir} has no {script}; {mend}")
    elif found["code"] is None:
        wrong.append(f"{host.python} has no {PACKAGE}; install the same version there")
    if by_setup and job.cluster.source.startswith("--"):
        by_setup += f", which makes {SETUP_PYTHON}"
    elif by_setup:  # setup makes the Python that the file names
        by_setup += f", with `python: {SETUP_PYTHON}` in the cluster file"
    if found["python"] is None:
        wrong.append(f"{found['python_error']}; choose another with --python, or make it{by_setup}")
    elif found["tensorflow"] is None:
        mend = f"choose another with --python, or install it{by_setup}"
        wrong.append(f"{host.python} has no TensorFlow; {mend}")
    return wrong


def _mend(job: Job) -> str:
    """Returns the command that brings code, packages and records to hosts; "" if none does."""
    return _SETUP if job.cluster.backend == "ssh" and not IS_INSTALLED else ""


def _differences(job: Job, facts: Mapping[str, Facts]) -> list[str]:
    """Returns a message for each fact in which a host differs from the first host that has it."""
    wrong = []
    for key in _COMPARED:
        mend = _IMAGE if key == "image" else f"have the same everywhere{_mend(job)}"
        values = [
            (host.name, facts[host.name][key])
            for host in job.cluster.hosts
            if (key != "data" or host.trains) and facts[host.name].get(key) is not None
        ]
        wrong += [
            f"{name}: {key} is {value}, but {values[0][1]} on {values[0][0]}; {mend}"
            for name, value in values[1:]
            if value != values[0][1]
        ]
    return wrong
