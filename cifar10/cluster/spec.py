"""The tasks of a cluster, their addresses, and this process's own. Standard library only.

All platforms' clusters have the same form here: exactly one master, which trains as the workers do
and also saves checkpoints. `cifar10.cluster.resolve` makes it from TF_CONFIG or the flags. For
people, each task keeps the name that its platform gives it, its label.

Two tasks belong to the same job if they have the same job token (CIFAR10_JOB_TOKEN, which the
launcher sets), or if neither has one and both have the same cluster. A token is only known by its
SHA-256, so that no message can show it.
"""

import dataclasses
import errno
import hashlib
import re
import socket
from collections.abc import Mapping
from typing import Optional

from cifar10.errors import ConfigError

MASTER, WORKER, PS, EVALUATOR = "master", "worker", "ps", "evaluator"
CHIEF = "chief"  # Another name of the master.
TOKEN = "CIFAR10_JOB_TOKEN"
_SHOWN_CHARS = 16  # of a token's digest
Jobs = Mapping[str, tuple[str, ...]]  # job -> address of each of its tasks
_ADDRESS = re.compile(r"([\w.-]{1,253}|\[[0-9a-fA-F:.]+(?:%[\w.-]+)?\]):([0-9]{1,5})")


@dataclasses.dataclass(frozen=True)
class Task:
    """A task of a cluster.

    Attributes:
      job: MASTER, WORKER, PS or EVALUATOR.
      index: its index in that job, from 0.
      label: its name as its platform calls it, e.g. `worker/0` of a master.
      address: its `host:port`; empty for an evaluator, which needs none.
    """

    job: str
    index: int
    label: str
    address: str

    def __str__(self) -> str:
        return f"{self.label} ({self.address})"

    @property
    def role(self) -> str:
        """The name by which tasks know each other, whatever their platform, e.g. `master/0`."""
        return f"{self.job}/{self.index}"

    @property
    def device(self) -> str:
        """The task's name in TensorFlow, e.g. `/job:worker/task:1`."""
        return f"/job:{self.job}/task:{self.index}"

    @property
    def target(self) -> str:
        """The session target of the task's server."""
        return f"grpc://{self.address}"


@dataclasses.dataclass(frozen=True)
class Cluster:
    """The tasks of a cluster, and which of them this process is.

    Attributes:
      jobs: addresses `host:port` by job: "master" (one address), "worker" and "ps"; a job without
        tasks is absent. TensorFlow's servers and devices have these names.
      task_type: this task's job: MASTER, WORKER, PS or EVALUATOR.
      task_index: this task's index in its job, from 0.
      has_evaluator: whether the cluster lists an evaluator, or this task is one.
      source: origin of these values, for messages: "TF_CONFIG" or "the flags".
      token: the `digest` of the job token; None without one.
      listed: the same addresses by the jobs of the platform, such as "chief", or "worker" alone;
        None: as in `jobs`.
    """

    jobs: Jobs
    task_type: str
    task_index: int
    has_evaluator: bool
    source: str
    token: Optional[str] = None
    listed: Optional[Jobs] = None

    def of(self, *jobs: str) -> list[Task]:
        """Returns the tasks of some jobs in this order; the evaluator is in none."""
        return [
            Task(job, index, self.label_of(job, index), address)
            for job in jobs
            for index, address in enumerate(self.jobs.get(job, ()))
        ]

    @property
    def own(self) -> Task:
        """This process's task."""
        if self.task_type == EVALUATOR:
            return Task(EVALUATOR, 0, self.label, "")
        return self.of(self.task_type)[self.task_index]

    @property
    def tasks(self) -> list[Task]:
        """All tasks but the evaluator."""
        return self.of(MASTER, WORKER, PS)

    @property
    def master(self) -> Task:
        """The task that saves checkpoints."""
        return self.of(MASTER)[0]

    @property
    def trainers(self) -> list[Task]:
        """The tasks that compute gradients: the master, then the workers."""
        return self.of(MASTER, WORKER)

    @property
    def label(self) -> str:
        """This task's name as its platform calls it, e.g. `worker/1`."""
        return self.label_of(self.task_type, self.task_index)

    def label_of(self, job: str, index: int) -> str:
        """Returns the platform's name of a task, which needs not be in the cluster."""
        chief = next((name for name in (MASTER, CHIEF) if name in self.platform_jobs), None)
        if job == MASTER:
            return f"{chief or WORKER}/{index}"
        return f"{job}/{index + (job == WORKER and chief is None)}"

    @property
    def platform_jobs(self) -> Jobs:
        """The addresses by the jobs of the platform."""
        return self.jobs if self.listed is None else self.listed

    @property
    def known_by(self) -> str:
        """What only the tasks of one job have in common, as messages say it."""
        if self.token:
            return f"the job token {self.token[:_SHOWN_CHARS]}... (SHA-256)"
        ordered = {job: self.jobs[job] for job in (MASTER, WORKER, PS) if job in self.jobs}
        return f"the cluster {show(ordered)}".lower()

    @property
    def num_trainers(self) -> int:
        """The number of tasks that compute gradients."""
        return len(self.trainers)

    @property
    def is_master(self) -> bool:
        """Whether this task is the chief, which saves checkpoints."""
        return self.task_type == MASTER

    @property
    def is_trainer(self) -> bool:
        """Whether this task computes gradients."""
        return self.task_type in (MASTER, WORKER)

    @property
    def is_single_process(self) -> bool:
        """Whether the cluster has no other task; then this one needs no server."""
        return len(self.tasks) == 1 and self.is_master and not self.has_evaluator

    @property
    def trainers_here(self) -> list[Task]:
        """The trainers on this task's host: their addresses have the same host name."""
        here = split_address(self.own.address)[0]
        return [task for task in self.trainers if split_address(task.address)[0] == here]

    @property
    def host_share(self) -> tuple[int, int]:
        """The (index, count) of this task among the trainers of its host, which share its devices.

        A ps or an evaluator has (0, 1).
        """
        if not self.is_trainer:
            return 0, 1
        return self.trainers_here.index(self.own), len(self.trainers_here)


def show(jobs: Jobs) -> str:
    """Returns the addresses of all jobs as text for messages."""
    return "; ".join(f"{job} {', '.join(addresses)}" for job, addresses in jobs.items())


def digest(secret: str) -> str:
    """Returns the SHA-256 of a token, in hexadecimal."""
    return hashlib.sha256(secret.encode("utf-8", "surrogateescape")).hexdigest()


def split_address(address: str, name: str = "an address") -> tuple[str, int]:
    """Splits an address into its host, in lower case, and its port.

    For example, `[::1]:2222` becomes (`::1`, 2222).

    Args:
      address: text of the form host:port, with an IPv6 host in brackets.
      name: name of the task that has this address, for messages.

    Raises:
      ConfigError: the address has another form.
    """
    found = _ADDRESS.fullmatch(address)
    if not found or not 1 <= int(found[2]) <= 65535:
        way_out = "write it like ip0:2222 or [::1]:2222, with a port from 1 to 65535"
        raise ConfigError(f"{name} must be host:port, got {address!r}; {way_out}")
    return found[1].strip("[]").lower(), int(found[2])


def check_port(cluster: Cluster) -> None:
    """Checks that this task's server, if it needs one, can have its port; ConfigError if not."""
    if cluster.is_single_process or cluster.task_type == EVALUATOR:
        return
    try:
        socket.create_server(("", split_address(cluster.own.address)[1])).close()
    except OSError as error:
        reason = {
            errno.EADDRINUSE: "the port is taken; end the process that has it, or choose another",
            errno.EACCES: "ports below 1024 need root; choose one above",
        }.get(error.errno or 0, f"{error.strerror}; choose another port")
        where = f"{cluster.label} cannot listen at {cluster.own.address}"
        raise ConfigError(f"{where}: {reason} (from {cluster.source})") from error
