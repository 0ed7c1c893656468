"""Which job a task belongs to, and how tasks of different jobs differ. Standard library only.

Two tasks belong to the same job if they have the same job token (CIFAR10_JOB_TOKEN, which the
launcher sets), or if neither has one and both have the same cluster. The run that uses the tasks is
known by its owner: the token, or else a random number that the master keeps in its output folder.

Tokens and random numbers are only known by their SHA-256, so that no message can show them.
"""

import dataclasses
import hashlib
import itertools
import json
from collections.abc import Mapping
from typing import Any, Optional

from cifar10.cluster.spec import (
    CHIEF,
    EVALUATOR,
    MASTER,
    PS,
    WORKER,
    Cluster,
    label_of,
    split_address,
)
from cifar10.errors import ConfigError

TOKEN = "CIFAR10_JOB_TOKEN"
_SHOWN_CHARS = 8  # of a digest, in messages
_MAX_CHARS = 1 << 20  # of an identity; an address takes some 20
_MAX_ADDRESS_CHARS = 300  # A host's name has at most 253.


@dataclasses.dataclass(frozen=True)
class Owner:
    """The run that uses a job's serving tasks.

    Attributes:
      digest: SHA-256 of the job token, or of the random number in the output folder.
      place: the master's output folder, as `HOST:FOLDER`, for messages.
    """

    digest: str
    place: str

    def as_text(self) -> str:
        """Returns the owner as JSON."""
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def from_text(cls, text: str) -> "Owner":
        """Reads what `as_text` has written.

        Raises:
          ValueError: the text is something else.
        """
        return cls.read(_object(text))

    @classmethod
    def read(cls, found: Any) -> "Owner":
        """Reads an owner from JSON; ValueError if it is something else."""
        return cls(_text(found, "digest"), _text(found, "place"))


@dataclasses.dataclass(frozen=True)
class Identity:
    """What a task says about itself to other tasks.

    Attributes:
      role: the task's name in `Cluster.jobs`, e.g. `ps/0`.
      token: SHA-256 of the job token; None without a token.
      jobs: addresses `host:port` of all tasks by the platform's jobs.
      owner: the run that the task belongs to; None if the task does not know it.
    """

    role: str
    token: Optional[str]
    jobs: Mapping[str, tuple[str, ...]]
    owner: Optional[Owner] = None

    @classmethod
    def of(cls, cluster: Cluster, owner: Optional[Owner] = None) -> "Identity":
        """Returns the identity of the cluster's own task."""
        return cls(cluster.role, cluster.token, cluster.platform_jobs, owner)

    def as_text(self) -> str:
        """Returns the identity as JSON."""
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def from_text(cls, text: str) -> "Identity":
        """Reads what `as_text` has written.

        Raises:
          ValueError: the text is something else.
        """
        found = _object(text)
        owner = found.get("owner")
        return cls(
            _text(found, "role"),
            None if found.get("token") is None else _text(found, "token"),
            _jobs(found.get("jobs")),
            None if owner is None else Owner.read(owner),
        )

    def difference(self, other: "Identity") -> Optional[str]:
        """Describes by what the other task shows that it belongs to another job, and the way out.

        Evaluators do not compare clusters: by Estimator's convention, theirs may lack other tasks.

        Returns:
          Text that follows the other task's name and a colon; None if both are of the same job.
        """
        if self.token != other.token:
            return (
                f"it has {_shown(other.token)}, this task has {_shown(self.token)}; correct the "
                f"address, or start all tasks in the same way with the same {TOKEN}"
            )
        if self.token is not None or self.role.startswith(f"{EVALUATOR}/"):
            return None
        unlike = _unlike(self.jobs, other.jobs)
        if unlike:
            return f"{unlike}; correct the address, or give all tasks of a job the same cluster"
        return None


def digest(secret: str) -> str:
    """Returns the SHA-256 of a token, in hexadecimal."""
    return hashlib.sha256(secret.encode("utf-8", "surrogateescape")).hexdigest()


def _shown(token: Optional[str]) -> str:
    return f"the job token {token[:_SHOWN_CHARS]}... (SHA-256)" if token else "no job token"


def _unlike(own: Mapping[str, tuple[str, ...]], other: Mapping[str, tuple[str, ...]]) -> str:
    """Describes the first difference of two clusters; an empty text if they are equal.

    One of them may list the master among the workers, and the other one as a job of its own.

    Args:
      own: the addresses of this task's cluster by the platform's jobs, whose names the text has.
      other: those of the other task's cluster.
    """
    for job, ours, theirs in zip((WORKER, PS), _by_role(own), _by_role(other)):
        if len(ours) != len(theirs):
            counted = PS if job == PS else "of the tasks that train"
            return f"its cluster has {len(theirs)} {counted}, this task's cluster has {len(ours)}"
        for index, (here, there) in enumerate(zip(ours, theirs)):
            if split_address(here) != split_address(there):
                task = (PS, index) if job == PS else (WORKER, index - 1) if index else (MASTER, 0)
                label = label_of(own, *task)
                return f"{label} of its cluster is {there}, of this task's cluster {here}"
    return ""


def _by_role(jobs: Mapping[str, tuple[str, ...]]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Returns the addresses of the trainers, the master first, and of the parameter servers."""
    chief = (*jobs.get(MASTER, ()), *jobs.get(CHIEF, ()))
    return (*chief, *jobs.get(WORKER, ())), jobs.get(PS, ())


def _object(text: str) -> dict[str, Any]:
    if len(text) > _MAX_CHARS:
        raise ValueError(f"it has {len(text):,} characters, more than {_MAX_CHARS:,}")
    try:
        found = json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if not isinstance(found, dict):
        raise ValueError(f"an identity must be a JSON object, got {text[:100]!r}")
    return found


def _jobs(found: Any) -> dict[str, tuple[str, ...]]:
    """Returns the addresses of all tasks by job."""
    if not isinstance(found, dict) or not all(isinstance(one, list) for one in found.values()):
        raise ValueError(f"jobs must be an object of lists, got {str(found)[:100]!r}")
    for address in itertools.chain(*found.values()):
        if not isinstance(address, str) or len(address) > _MAX_ADDRESS_CHARS:
            raise ValueError(f"an address must be host:port, got {str(address)[:100]!r}")
        try:
            split_address(address)
        except ConfigError as error:
            raise ValueError(str(error)) from None
    return {job: tuple(addresses) for job, addresses in found.items()}


def _text(found: Any, name: str) -> str:
    value = found.get(name) if isinstance(found, dict) else None
    if not isinstance(value, str):
        raise ValueError(f"{name} must be text, got {str(value)[:100]!r}")
    return value
