"""Writes a cluster file in which a comment explains every line.

Keys that the user need not set are there, too, commented out, with their default or an example.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Optional

import yaml

from launch.cluster.kind import Kind

_WIDTH = 38  # of the part before the comment
_Rows = Sequence[tuple[str, str]]  # (key and value, comment)

_HEADER = """\
# A cluster for `python -m launch`. Lines that begin with `# KEY:` show defaults or examples.
{first}
#   python -m launch up --cluster {path} -- --train-batch-size=128    # trains
"""
# Backend -> what its first lines advise before `up`.
_SETUP = "#   python -m launch setup --cluster {path}    # copies the code, .venv and the records"
_PLAN = "#   python -m launch plan --cluster {path}    # prints the manifests"
_CHECK = "#   python -m launch check --cluster {path}    # says what is missing"
_FIRST = {"ssh": f"{_SETUP}\n{_CHECK}", "kubernetes": _PLAN}
_BACKENDS = {
    "ssh": "tasks are processes on the hosts; or docker, local, slurm, kubernetes",
    "docker": "tasks are containers on the hosts; or ssh, local, slurm, kubernetes",
    "local": "all tasks run on this machine; or ssh, docker, slurm, kubernetes",
    "slurm": "tasks are processes of one batch job; or ssh, docker, local, kubernetes",
    "kubernetes": "tasks are pods of one TFJob; or ssh, docker, local, slurm",
}
_OF_THIS_MACHINE: _Rows = (("gpus: 2", "default: those that are found there"),)
_OF_A_HOST: _Rows = (
    ("address: 10.0.0.1", "at which other tasks connect; default: the name"),
    ("user: alice", "who logs in; default: from your ssh configuration"),
    *_OF_THIS_MACHINE,
)
_OF_HOSTS: _Rows = (
    ("agent_python: python3", "for the launcher's agent: 3.9 or newer"),
    ("ports: 2222", "or a range, 2222-2299, or free, which finds free ones"),
)
_OF_JOBS: _Rows = (
    ("gpus_per_task: 1", "default: the host's GPUs, divided; on kubernetes none"),
    ("restarts: 0", "how often a failed task is started again"),
    ("environment: {OMP_NUM_THREADS: 2}", "variables for every task"),
    ("pass_environment: [API_TOKEN]", "variables with their values in your shell"),
)
_SYNC: _Rows = (("sync: false", "true: copy the code by rsync before each job"),)
_LIMITS: _Rows = (
    ("limits:", "time limits, in seconds"),
    ("  start_secs: 600", "until the first training step; or off"),
    ("  idle_secs: 1800", "without a line from any task; or off"),
    ("  grace_secs: 30", "for the other tasks to end after the master"),
    ("  stop_secs: 60", "for a task to save when it is stopped"),
    ("  lease_secs: 30", "of silence, after which a host counts as lost"),
)
_SECTIONS: Mapping[str, _Rows] = {
    "docker": (
        ("image: cifar10", "on every host: docker save IMAGE | ssh HOST docker load"),
        ("engine: docker", "or podman, or a path to one of them"),
        ("data: data", "the records on the hosts, as seen from workdir"),
        ("output: output", "for checkpoints and figures, as seen from workdir"),
        ("restricted: true", "false: a container may do what the engine allows"),
        ("options: [--shm-size=1g]", "further words for `docker run`"),
    ),
    "slurm": (
        ("partition: gpu", "as `sinfo` lists them; default: the cluster's"),
        ("account: lab", "which sbatch charges; default: yours"),
        ("qos: normal", "quality of service; default: the account's"),
        ("time: 2-12:00:00", "limit of the job; default: the partition's"),
        ("mem: 16G", "memory on each node; default: the partition's"),
        ("cpus_per_task: 1", "cores for each task"),
        ("gpu_type: a100", "default: any type"),
        ("exclusive: false", "true: whole nodes, which no other job shares"),
        ("requeue: false", "true: goes on after a preemption or the time limit"),
        ("pending_secs: 3600", "how long to wait in the queue; default: no limit"),
        ("options: [--constraint=ib]", "further options of sbatch"),
    ),
    "kubernetes": (
        ("image: cifar10", "with its registry, as the nodes pull it"),
        ("data: cifar10-data", "records: a claim, /path of the nodes, or server:/path (NFS)"),
        ("output: cifar10-output", "the same for results; user 1000 must be able to write there"),
        ("image_pull_policy: IfNotPresent", "or Always, or Never"),
        ("image_pull_secrets: [registry-key]", "Secrets with the registry's credentials"),
        ("context: lab", "of the kubeconfig; default: the current one"),
        ("namespace: vision", "default: the context's"),
        ("name: cifar10", "the TFJob is called NAME-RUN"),
        ("cpu: 2", "cores of each trainer"),
        ("memory: 8Gi", "of each trainer"),
        ("ps_cpu: 1", "cores of each parameter server"),
        ("ps_memory: 2Gi", "of each parameter server"),
        ("gpu: nvidia.com/gpu", "the resource that gpus_per_task counts"),
        ("node_selector: {pool: gpus}", "labels that a node must have"),
        ('tolerations: ["gpu:NoSchedule"]', "taints of nodes that the pods tolerate"),
        ("ttl_secs: 86400", "a finished job that nobody follows is removed then"),
        ("deadline_secs: 604800", "the job ends then, whoever follows it; or off"),
    ),
}


@dataclass(frozen=True)
class Layout:
    """What a cluster file is to say.

    Attributes:
      kind: the backend.
      hosts: (name, user or None, task type -> count) of each host; empty if the backend chooses
        the hosts.
      counts: task type -> count in all.
      python: the Python of the training; None if the image has it.
      workdir: the folder with the code; None if the image has it.
      settings: keys of the backend's section that are set, with their values.
    """

    kind: Kind
    hosts: Sequence[tuple[str, Optional[str], Mapping[str, int]]]
    counts: Mapping[str, int]
    python: Optional[str]
    workdir: Optional[str]
    settings: Mapping[str, str]


def cluster_text(layout: Layout, path: str) -> str:
    """Returns the text of a cluster file.

    Args:
      layout: what it is to say.
      path: the path of the file, for its first lines.
    """
    first = _FIRST.get(layout.kind.name, _CHECK).format(path=path)
    return _HEADER.format(path=path, first=first) + "\n" + "\n".join(_lines(layout)) + "\n"


def _lines(layout: Layout) -> Iterator[str]:
    kind = layout.kind
    yield _line(f"backend: {kind.name}", _BACKENDS[kind.name])
    if kind.chooses_hosts:
        yield _line(f"tasks: {_mapping(layout.counts)}", "how many of each; one master or chief")
        if not kind.host_per_task:
            yield _line("nodes: 1", "default: one for each trainer", is_set=False)
    else:
        yield _line("hosts:", "the machines; the first one has the master, which saves")
        for i, host in enumerate(layout.hosts):
            yield from _host(*host)
            rows = _OF_A_HOST if i == 0 else ()
            for row in _OF_THIS_MACHINE if kind.is_this_machine else rows:
                if host[1] is None or not row[0].startswith("user:"):
                    yield _line(f"    {row[0]}", row[1], is_set=False)
    if layout.workdir is not None:
        yield _line(f"workdir: {_scalar(layout.workdir)}", "there: holds cifar10_main.py")
    if layout.python is not None:
        yield _line(f"python: {_scalar(layout.python)}", "of the training, as seen from workdir")
    rows = [*(() if kind.chooses_hosts else _OF_HOSTS), *_OF_JOBS]
    rows += _SYNC if kind.name == "ssh" else ()
    for row in (*rows, *_LIMITS):
        yield _line(*row, is_set=False)
    yield from _section(layout)


def _host(name: str, user: Optional[str], roles: Mapping[str, int]) -> Iterator[str]:
    yield _line(f"  - name: {_scalar(name)}", "as ssh knows it")
    yield _line(f"    roles: {_mapping(roles)}", "how many tasks of each type it runs")
    if user is not None:
        yield _line(f"    user: {_scalar(user)}", "who logs in there")


def _section(layout: Layout) -> Iterator[str]:
    """Yields the section of the backend; commented out as a whole if it sets nothing."""
    name, said = layout.kind.name, layout.settings
    if name in _SECTIONS:
        yield _line(f"{name}:", f"what concerns {name} alone", is_set=bool(said))
    for row, words in _SECTIONS.get(name, ()):
        key = row.partition(":")[0]
        text = f"  {key}: {_scalar(said[key])}" if key in said else f"  {row}"
        yield _line(text, words, is_set=key in said)


def _line(text: str, words: str, *, is_set: bool = True) -> str:
    return f"{text if is_set else f'# {text}':<{_WIDTH}}  # {words}"


def _mapping(counts: Mapping[str, int]) -> str:
    return "{" + ", ".join(f"{key}: {count}" for key, count in counts.items()) + "}"


def _scalar(text: str) -> str:
    """Returns a value as YAML, in one line, quoted where that is needed."""
    return yaml.safe_dump(text, width=1_000_000, allow_unicode=True).removesuffix("...\n").strip()
