"""Which job a task belongs to, and how tasks of different jobs differ. Standard library only.

Two tasks belong to the same job if they have the same job token (CIFAR10_JOB_TOKEN, which the
launcher sets), or if neither has one and both have the same cluster. The run that uses the tasks is
known by its owner: the token, or else a random number that the master keeps in its output folder.

Tokens and random numbers are only known by their SHA-256, so that no message can show them.
"""

import contextlib
import dataclasses
import hashlib
import itertools
import json
from collections.abc import Iterator, Mapping
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
Terms = Optional[Mapping[str, str]]  # what trainers must agree on, by name
_SHOWN_CHARS = 8  # of a digest, in messages
_MAX_CHARS = 8192  # of each text of an identity; a path has at most 4,096


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
        """Reads what `as_text` has written; ValueError if the text is something else."""
        with _malformed():
            return cls.read(json.loads(text))

    @classmethod
    def read(cls, found: Any) -> "Owner":
        """Reads an owner from JSON."""
        return cls(_text(found["digest"]), _text(found["place"]))


@dataclasses.dataclass(frozen=True)
class Identity:
    """What a task says about itself to other tasks.

    Attributes:
      role: the task's name in `Cluster.jobs`, e.g. `ps/0`.
      token: SHA-256 of the job token; None without a token.
      jobs: addresses `host:port` of all tasks by the platform's jobs.
      owner: the run that the task belongs to; None if the task does not know it.
      terms: what trainers must agree on, by name; a task that trains nothing has none.
    """

    role: str
    token: Optional[str]
    jobs: Mapping[str, tuple[str, ...]]
    owner: Optional[Owner] = None
    terms: Mapping[str, str] = dataclasses.field(default_factory=dict)

    @classmethod
    def of(cls, cluster: Cluster, owner: Optional[Owner] = None, terms: Terms = None) -> "Identity":
        """Returns the identity of the cluster's own task."""
        return cls(cluster.role, cluster.token, cluster.platform_jobs, owner, terms or {})

    def as_text(self) -> str:
        """Returns the identity as JSON."""
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def from_text(cls, text: str) -> "Identity":
        """Reads what `as_text` has written.

        Raises:
          ValueError: the text is something else.
        """
        with _malformed():
            found = json.loads(text)
            token, owner = found.get("token"), found.get("owner")
            return cls(
                _text(found["role"]),
                None if token is None else _text(token),
                {job: tuple(map(_address, tasks)) for job, tasks in found["jobs"].items()},
                None if owner is None else Owner.read(owner),
                {_text(name): _text(value) for name, value in found.get("terms", {}).items()},
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
    for job in (WORKER, PS):
        for index, (here, there) in enumerate(
            itertools.zip_longest(_of(job, own), _of(job, other))
        ):
            if here is None or there is None or split_address(here) != split_address(there):
                task = (job, index) if job == PS else (job, index - 1) if index else (MASTER, 0)
                label, here, there = label_of(own, *task), here or "missing", there or "missing"
                return f"{label} of its cluster is {there}, of this task's cluster {here}"
    return ""


def _of(job: str, jobs: Mapping[str, tuple[str, ...]]) -> tuple[str, ...]:
    """Returns the addresses of the parameter servers, or of the trainers, the master first."""
    chief = (*jobs.get(MASTER, ()), *jobs.get(CHIEF, ())) if job == WORKER else ()
    return (*chief, *jobs.get(job, ()))


@contextlib.contextmanager
def _malformed() -> Iterator[None]:
    """Raises ValueError for what JSON of another form causes."""
    try:
        yield
    except (AttributeError, ConfigError, KeyError, RecursionError, TypeError) as error:
        raise ValueError(f"malformed: {str(error)[:100]}") from None


def _address(text: Any) -> str:
    split_address(_text(text))
    return str(text)


def _text(value: Any) -> str:
    if not isinstance(value, str) or len(value) > _MAX_CHARS:
        raise TypeError(f"{str(value)[:100]!r} is no text of at most {_MAX_CHARS:,} characters")
    return value
