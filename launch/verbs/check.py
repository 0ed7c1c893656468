"""`plan` and `check`: what would run where, and whether all hosts are ready for it."""

import argparse
import contextlib
import json
import socket
from collections.abc import Mapping
from typing import Any, Optional

from cifar10_program import IS_INSTALLED, PACKAGE
from launch.backends.base import Backend, ContainerNeeds
from launch.backends.registry import backend_named
from launch.cluster.model import FREE_PORTS, Host
from launch.cluster.show import as_documents, variables
from launch.cluster.tasks import PACKAGES, Job, make_job, num_ports, script_of
from launch.connect.agent_client import Questions
from launch.errors import HostError, below_each_other
from launch.screen.display import print_json
from launch.screen.row import plain_lines
from launch.supervise.run_loop import stop_signals
from launch.verbs.flags import cluster_of
from launch.verbs.init import SETUP_PYTHON

_SETUP = ": python -m launch setup"
_IMAGE = "copy the same image to all hosts: docker save, docker load, or a registry"
_COMPARED = ("image", "code", "python", "tensorflow", "data")  # the same on all hosts
_LEAST_DISK = 1 << 30


# What a host's agent has found, see launch.agent.host_facts.look, with `failures`: (address, port,
# error) of each port of other hosts that it could not connect to; or why it is `unreachable`.
Facts = Mapping[str, Any]


def plan(options: argparse.Namespace) -> int:
    """Prints what would run where, or with --shell what to run by hand; contacts nobody."""
    cluster = cluster_of(options)
    backend = backend_named(cluster.backend)
    ports: Optional[dict[str, list[int]]] = None
    if backend.is_this_machine and cluster.ports == FREE_PORTS:  # up chooses others
        (host,) = cluster.hosts
        with contextlib.ExitStack() as held:
            free = [socket.create_server(("127.0.0.1", 0)) for _ in range(num_ports(host))]
            ports = {host.name: [held.enter_context(server).getsockname()[1] for server in free]}
    job = make_job(cluster, options.arguments, ports)
    if options.json:
        tasks = [
            {"task": task.name, "host": task.host.name, "user": task.host.user, "port": task.port,
             "address": task.host.address, "workdir": task.host.workdir, "argv": task.argv,
             "TF_CONFIG": json.loads(backend.tf_config(job, task)), "gpus": task.devices.gpus}
            for task in job.tasks
        ]  # fmt: skip
        files = [vars(document) for document in backend.plan(job)] if backend.survives else []
        names = variables(job)
        print_json(backend=backend.name, tasks=tasks, environment=names, documents=files)
        return 0
    print(as_documents(backend.plan(job)) if options.shell else backend.plan_text(job))
    return 0


def check(options: argparse.Namespace) -> int:
    """Examines all hosts in parallel; see `check_job`."""
    return check_job(make_job(cluster_of(options), options.arguments), as_json=options.json)


def check_job(job: Job, *, as_json: bool = False) -> int:
    """Prints the facts about the hosts and the problems; returns 1 for a problem, else 0.

    For a backend with a scheduler that can judge a job, prints its answer instead.

    Raises:
      LaunchError: the backend can check neither hosts nor the job.
    """
    backend = backend_named(job.cluster.backend)
    if backend.survives:
        said = backend.check(job)
        if as_json:
            print_json(hosts={}, problems=[], said=said)
        else:
            print(plain_lines("\n".join(said)))
        return 0
    facts, wrong = _examine(job, backend)
    if as_json:
        print_json(hosts=facts, problems=wrong, said=[])
        return 1 if wrong else 0
    found = [_has(name, one) for name, one in facts.items() if "unreachable" not in one]
    if "://" in job.folder("data"):
        found.append(f"{job.folder('data')}: not looked at; the tasks read it by themselves")
    found += [f"problem: {one}" for one in wrong]
    found += [] if wrong else ["everything is in place"]
    print(plain_lines("\n".join(found)))
    return 1 if wrong else 0


def _has(name: str, found: Facts) -> str:
    has = "".join(f", {key} {found[key]}" for key in _COMPARED if found.get(key) is not None)
    return f"{name}: {len(found['gpus'])} GPUs, {found['disk_free'] >> 30} GiB of disk{has}"


def refuse_problems(job: Job, backend: Backend) -> None:
    """Checks the hosts before a job starts.

    Raises:
      HostError: there are problems; the message names all of them.
    """
    _, wrong = _examine(job, backend)
    if wrong:
        raise HostError(below_each_other([*wrong, "to start anyway: --no-check"]))


def _examine(job: Job, backend: Backend) -> tuple[dict[str, Facts], list[str]]:
    """Asks all hosts in parallel; returns host name -> the facts about it, and all problems.

    Signals that ask for the end close the connections, and raise SystemExit (128 + n).
    """
    assert backend.transport is not None
    containers = backend.containers(job)
    hosts, script = job.cluster.hosts, script_of(job.cluster)
    records = job.folder("data") if containers is None else containers.records

    def look(host: Host) -> dict[str, Any]:
        return {
            "do": "look",
            "cwd": host.workdir,
            "python": host.python if containers is None else None,
            "code": (script, *PACKAGES) if script else (),
            "engine": None if containers is None else containers.engine,
            "image": None if containers is None else containers.image,
            "data": records if host.trains and "://" not in records else None,
            "ports": [task.port for task in job.on(host) if task.port is not None],
        }

    def dial(host: Host) -> dict[str, Any]:
        targets = [
            (other.address, port)
            for other in reached
            # The tasks of one host reach each other by its address, too.
            if other is not host or len(looked.found[other.name]["ports"]) > 1
            for port, why_not in looked.found[other.name]["ports"]
            if why_not is None
        ]
        return {"do": "dial", "targets": targets}

    with stop_signals() as stops, Questions(backend.transport, stops) as questions:
        looked = questions.ask(hosts, look)
        reached = [host for host in hosts if host.name in looked.found]
        dialled = questions.ask(reached, dial)
    failed = {**looked.failed, **dialled.failed}
    facts: dict[str, Facts] = {name: {"unreachable": why} for name, why in failed.items()}
    for name, answer in dialled.found.items():
        facts[name] = {**looked.found[name], **answer}
    return facts, problems(job, facts, containers)


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
        if "unreachable" in theirs:
            found.append(theirs["unreachable"])
        else:
            found += [f"{host.name}: {one}" for one in _of_one(job, host, theirs, containers)]
    return found + _differences(job, facts)


def _of_one(job: Job, host: Host, found: Facts, containers: Optional[ContainerNeeds]) -> list[str]:
    way_out = _way_out(job)
    if containers is None:
        wrong, place, key = _of_python(job, host, found), job.folder("data"), "--data-dir"
    else:
        wrong, way_out, key = [], "", "`docker: {data: }`"
        place = containers.data or f"{host.workdir}/data"
        if found["engine_error"] is not None:
            wrong.append(found["engine_error"])
        elif found["image"] is None:
            wrong.append(f"it has no image {containers.image}; {_IMAGE}")
    if host.trains and found["data"] is None and "://" not in place:
        wrong.append(f"no records in {place}; copy them there{way_out}, or name {key}")
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
    way_out, script = _way_out(job), script_of(job.cluster)
    if not found["has_workdir"]:  # then a Python may be missing for the same reason
        return [f"{host.workdir} does not exist; make it{way_out}, or name another with --workdir"]
    wrong = []
    if found["code"] is None and script:
        mend = f"put it there{way_out}, or name its folder with --workdir"
        wrong.append(f"{host.workdir} has no {script}; {mend}")
    elif found["code"] is None:
        wrong.append(f"{host.python} has no {PACKAGE}; install the same version there")
    if way_out and job.cluster.source.startswith("--"):
        way_out += f", which makes {SETUP_PYTHON}"
    elif way_out:  # setup makes the Python that the file names
        way_out += f", with `python: {SETUP_PYTHON}` in the cluster file"
    if found["python"] is None:
        wrong.append(f"{found['python_error']}; choose another with --python, or make it{way_out}")
    elif found["tensorflow"] is None:
        mend = f"choose another with --python, or install it{way_out}"
        wrong.append(f"{host.python} has no TensorFlow; {mend}")
    return wrong


def _way_out(job: Job) -> str:
    """Returns the command that brings code, packages and records to hosts; "" if none does."""
    return _SETUP if job.cluster.backend == "ssh" and not IS_INSTALLED else ""


def _differences(job: Job, facts: Mapping[str, Facts]) -> list[str]:
    """Returns a message for each fact in which a host differs from the first host that has it."""
    wrong = []
    for key in _COMPARED:
        mend = _IMAGE if key == "image" else f"have the same everywhere{_way_out(job)}"
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
