"""Which job a task belongs to, and how tasks of different jobs differ. Standard library only.

Two tasks belong to the same job if they have the same job token (CIFAR10_JOB_TOKEN, which the
launcher sets), or if neither has one and both have the same cluster. The run that uses the tasks is
known by its key: the token, or else a random number that the master keeps in its output folder.

Tokens and random numbers are only known by their SHA-256, so that no message can show them.
"""

import dataclasses
import hashlib
import itertools
import json
from collections.abc import Mapping
from typing import Optional

from cifar10.cluster.spec import MASTER, PS, WORKER, Cluster, Jobs

TOKEN = "CIFAR10_JOB_TOKEN"
Terms = Mapping[str, str]  # what trainers must agree on, by name
_SHOWN_CHARS = 8  # of a digest, in messages
_MOST_CHARS = 1 << 18  # of an identity; thousands of tasks need no more


@dataclasses.dataclass(frozen=True)
class Identity:
    """What a task says about itself to other tasks.

    Attributes:
      role: the task's name in `Cluster.jobs`, e.g. `ps/0`.
      token: SHA-256 of the job token; empty without a token.
      jobs: addresses `host:port` of all tasks, as in `Cluster.jobs`.
      run: the key of the run that the task belongs to: SHA-256 of the job token, or of the random
        number in the output folder; empty if the task does not know it.
      place: the output folder of that run's master, as `HOST:FOLDER`, for messages.
      terms: what trainers must agree on, by name; a task that trains nothing has none.
    """

    role: str
    token: str
    jobs: Jobs
    run: str = ""
    place: str = ""
    terms: Terms = dataclasses.field(default_factory=dict)

    @classmethod
    def of(
        cls, cluster: Cluster, run: str = "", place: str = "", terms: Optional[Terms] = None
    ) -> "Identity":
        """Returns the identity of the cluster's own task."""
        return cls(cluster.own.role, cluster.token or "", cluster.jobs, run, place, terms or {})

    def as_text(self) -> str:
        """Returns the identity as JSON."""
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def from_text(cls, text: str) -> "Identity":
        """Reads what `as_text` has written.

        Raises:
          ValueError: the text is something else.
        """
        if len(text) > _MOST_CHARS:
            raise ValueError(f"longer than {_MOST_CHARS:,} characters")
        try:
            found = cls(**json.loads(text))
            jobs = {job: tuple(addresses) for job, addresses in found.jobs.items()}
            texts = [found.role, found.token, found.run, found.place, *found.terms.values()]
            "".join(itertools.chain(texts, *jobs.values()))  # TypeError: one is no text.
            return dataclasses.replace(found, jobs=jobs)
        except (AttributeError, RecursionError, TypeError) as error:
            raise ValueError(f"malformed: {str(error)[:100]}") from None


def difference(cluster: Cluster, other: Identity) -> Optional[str]:
    """Describes by what another task shows that it belongs to another job, and the way out.

    Args:
      cluster: this task's cluster.
      other: the other task's identity.

    Returns:
      Text that follows the other task's name and a colon; None if both are of the same job.
    """
    if (cluster.token or "") != other.token:
        return (
            f"it has {_shown(other.token)}, this task has {_shown(cluster.token)}; correct the "
            f"address, or start all tasks in the same way with the same {TOKEN}"
        )
    if cluster.token:
        return None
    for job in (MASTER, WORKER, PS):
        both = itertools.zip_longest(cluster.jobs.get(job, ()), other.jobs.get(job, ()))
        for index, (here, there) in enumerate(both):
            if here is None or there is None or here.lower() != there.lower():
                return (
                    f"{cluster.label_of(job, index)} of its cluster is {there or 'missing'}, of "
                    f"this task's cluster {here or 'missing'}; correct the address, or give all "
                    "tasks of a job the same cluster"
                )
    return None


def digest(secret: str) -> str:
    """Returns the SHA-256 of a token, in hexadecimal."""
    return hashlib.sha256(secret.encode("utf-8", "surrogateescape")).hexdigest()


def _shown(token: Optional[str]) -> str:
    return f"the job token {token[:_SHOWN_CHARS]}... (SHA-256)" if token else "no job token"
