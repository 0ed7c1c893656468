"""Checks that the tasks which this one meets belong to its job, before it uses them."""

import time
from collections.abc import Collection
from typing import Optional

from cifar10.cluster import introduction
from cifar10.cluster.identity import Identity, Owner, Terms
from cifar10.cluster.introduction import Conversation, NoAnswerError, StrangerError
from cifar10.cluster.liveness import answers
from cifar10.cluster.spec import Cluster
from cifar10.errors import ConfigError
from cifar10.host.console import say

_ASKED_SECS = 2.0  # for the master, which asks each second, and then says what differs, too
_SILENCE_SECS = 30.0  # after which a server that does not say who it is counts as another program


class Acquaintance:
    """Asks other tasks who they are, and makes the master the owner of those that serve it.

    Args:
      cluster: the cluster and this process's task in it.
      labels: labels of the tasks to check, e.g. `ps/0`, as in `Cluster.labels`; others are taken
        as they are.
      serving: labels of those among them that serve a run. The master claims them, see
        `start_claiming`; a worker uses them only if their owner is its master.
      owner: the owner of this task's run; None if this task learns it from the master, or does not
        need it.
      terms: what this task must agree on with other trainers.
    """

    def __init__(
        self,
        cluster: Cluster,
        labels: Collection[str],
        serving: Collection[str] = (),
        owner: Optional[Owner] = None,
        terms: Terms = None,
    ) -> None:
        self._cluster, self._owner, self._terms = cluster, owner, terms
        self._said: set[str] = set()
        self._labels, self._serving = frozenset(labels), frozenset(serving)
        self._roles = {label: role for role, label in cluster.labels.items()}
        self._silent_since: dict[str, float] = {}
        self._met: set[str] = set()
        self._claims = False

    @property
    def identity(self) -> Identity:
        """This task's identity, with the owner of its run as far as it is known."""
        return Identity.of(self._cluster, self._owner, self._terms)

    def start_claiming(self) -> None:
        """From now on, a master claims serving tasks when it meets them; before, it only looks.

        So a master that one task refuses has claimed no other one, which another run may need.
        """
        self._claims = self._cluster.is_master

    def meet(self, label: str) -> bool:
        """Asks a task who it is.

        If a task of another job answers where one of this job was before, it may end by itself, and
        the right one may come back. So it counts as no answer, unless it would be used at once.

        Returns:
          Whether the task has answered and may be used.

        Raises:
          ConfigError: the task belongs to another job or another run.
        """
        if label not in self._labels:
            return True
        try:
            is_met = self._ask(label)
        except ConfigError:
            if label in self._met and label not in self._serving:
                return False
            raise
        if is_met:
            self._met.add(label)
        return is_met

    def _ask(self, label: str) -> bool:
        """Does the work of `meet`, whether or not the task was met before."""
        address = self._address(label)
        # Where gRPC cannot connect, it does not try again for a while.
        if not answers(address):
            self._silent_since.pop(label, None)
            return False
        try:
            with introduction.conversation(address) as task:
                return self._check(label, task)
        except NoAnswerError:
            return False
        except StrangerError as error:
            raise ConfigError(
                f"{self._named(label)} is no task of this program ({error}); correct the address, "
                "or start the task there"
            ) from error

    def _check(self, label: str, task: Conversation) -> bool:
        """Does the work of `meet` with a task that answers."""
        identity = task.identity()
        if identity is None:
            since = self._silent_since.setdefault(label, time.monotonic())
            if time.monotonic() - since < _SILENCE_SECS:
                return False
            raise ConfigError(
                f"{self._named(label)} does not say which job it belongs to, so it is another "
                "program or another version of this one; correct the address, or start the task "
                "there with this version"
            )
        self._silent_since.pop(label, None)
        difference = self.identity.difference(identity)
        if difference:
            raise ConfigError(f"{self._named(label)} belongs to another job: {difference}")
        if identity.role != self._roles[label]:
            other = self._cluster.labels.get(identity.role, identity.role)
            raise ConfigError(f"{self._named(label)} is {other} of this job; correct the addresses")
        if not self._agrees(label, identity):
            return False
        if label == self._cluster.master_label:
            self._owner = identity.owner
        return label not in self._serving or self._check_owner(label, task)

    def _agrees(self, label: str, identity: Identity) -> bool:
        """Returns whether another trainer trains as this one does; a master says it if not.

        Raises:
          ConfigError: this task is no master; the master goes on, and waits for the right one.
        """
        for name, own in (self._terms or {}).items():
            other = identity.terms.get(name, own)
            if own == other:
                continue
            line = (
                f"{name} is {own} for {self._cluster.label}, but {other} for {self._named(label)}; "
                "start all trainers with the same program, settings and records"
            )
            if not self._cluster.is_master:
                time.sleep(_ASKED_SECS)
                raise ConfigError(line)
            if line not in self._said:
                self._said.add(line)
                say(line)
            return False
        return True

    def _check_owner(self, label: str, task: Conversation) -> bool:
        """Checks that a serving task has the same owner as this one, or none; may claim it."""
        if self._owner is None:
            return True  # A worker that has not met its master yet; it asks again before its use.
        holder = task.claim(self._owner) if self._claims else task.owner()
        if holder is None or holder.digest == self._owner.digest:
            return True
        if not self._cluster.is_master:
            before = self._owner
            if not self.meet(self._cluster.master_label):
                return False
            if before != self._owner:
                return self._check_owner(label, task)  # The master has started again meanwhile.
        raise ConfigError(
            f"{self._named(label)} serves another run: {_unlike(holder, self._owner)}; end that "
            f"run first; if it has ended, start {label} again; to continue it, give its "
            "--output-dir"
        )

    def _named(self, label: str) -> str:
        return f"{label} ({self._address(label)})"

    def _address(self, label: str) -> str:
        job, _, index = self._roles[label].partition("/")
        return self._cluster.address_of(job, int(index))


def _unlike(holder: Owner, own: Owner) -> str:
    if holder.place == own.place:
        return f"one that began earlier in {own.place}, whose files are gone"
    return f"that of {holder.place}, but this task's is that of {own.place}"
