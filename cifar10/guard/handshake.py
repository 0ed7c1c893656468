"""Checks that the tasks which this one meets belong to its job, before it uses them."""

import dataclasses
import time
from collections.abc import Collection
from pathlib import Path
from typing import Optional

from cifar10.cluster.spec import TOKEN, Cluster, Task, digest
from cifar10.config.settings import flag_name, flag_of
from cifar10.config.train_config import TrainConfig
from cifar10.errors import ConfigError
from cifar10.guard.server import Board, Identity, NoAnswer, board_of
from cifar10.host.process import say
from cifar10.input.records import RecordSet
from cifar10_program import VERSION

_OF_TRAINERS = ("sync", "replicas_to_aggregate", "replication", "ps_transfer")
_DIGEST_CHARS = 8
_ASKED_SECS = 2.0  # for the master, which asks each second, and then says what differs, too


class Acquaintance:
    """Asks other tasks who they are, and makes the master the owner of those that serve it.

    Args:
      cluster: the cluster and this process's task in it.
      asked: the tasks to check; others are taken as they are.
      serving: those among them that serve a run. The master claims them, see `claims`; a worker
        uses them only if they serve its master's run.
      identity: this task's identity; None: it has nothing to agree on, and no run of its own.

    Attributes:
      identity: this task's identity, with its run as far as it is known: a master knows its own,
        others learn it from the master.
      claims: whether this task claims serving tasks when it meets them; else it only looks. A
        master begins to claim with its first session: if one task refuses it before, it has claimed
        no other one, which another run may need.
    """

    def __init__(
        self,
        cluster: Cluster,
        asked: Collection[Task],
        serving: Collection[Task] = (),
        identity: Optional[Identity] = None,
    ) -> None:
        self.identity, self.claims = identity or Identity.of(cluster), False
        self._cluster, self._asked, self._serving = cluster, asked, serving
        self._met: set[Task] = set()
        self._said: set[str] = set()

    def meet(self, task: Task) -> bool:
        """Asks a task who it is.

        If a task of another job answers where one of this job was before, it may end by itself, and
        the right one may come back. So it counts as no answer, unless it would be used at once.

        Returns:
          Whether the task has answered and may be used. A server that does not say who it is has
          just started, or is another program's, and counts as one that does not answer.

        Raises:
          ConfigError: the task belongs to another job or another run, or a worker trains otherwise
            than its master.
        """
        if task not in self._asked:
            return True
        try:
            with board_of(task) as board:
                found = board.identity()
                if found is None:
                    return False
                self._check(task, found)
                unlike = self._unlike(task, found)
                if not unlike:
                    if task == self._cluster.master:  # From it, others learn the run.
                        self.identity = self.identity.in_run_of(found)
                    may_be_used = task not in self._serving or self._serves_this_run(task, board)
                    self._met.update([task] * may_be_used)
                    return may_be_used
        except NoAnswer:
            return False
        except ConfigError:
            if task in self._met and task not in self._serving:
                return False
            raise
        if not self._cluster.is_master:
            time.sleep(_ASKED_SECS)
            raise ConfigError(unlike)
        if unlike not in self._said:  # The master goes on, and waits for the right one.
            self._said.add(unlike)
            say(unlike)
        return False

    def _check(self, task: Task, found: Identity) -> None:
        own = self.identity
        if found.job != own.job:
            raise ConfigError(
                f"{task} belongs to another job: it has {found.job}, this task has {own.job}; "
                f"correct the address, or give all tasks of a job the same cluster and {TOKEN}"
            )
        if found.role != task.role:
            labels = {one.role: one.label for one in self._cluster.tasks}
            other = labels.get(found.role, found.role)
            raise ConfigError(f"{task} is {other} of this job; correct the addresses")

    def _unlike(self, task: Task, found: Identity) -> str:
        """Describes in what another trainer trains otherwise than this one; "" if in nothing."""
        for name, own in self.identity.terms.items() if found.terms else ():
            other = found.terms.get(name)
            if own != other:
                return (
                    f"{name} is {own} for {self._cluster.label}, but {other} for {task}; start all "
                    "trainers with the same program, settings and records"
                )
        return ""

    def _serves_this_run(self, task: Task, board: Board) -> bool:
        """Returns whether a serving task may be used; raises ConfigError if another run has it."""
        own = self.identity
        if not own.run:
            return True  # A worker that has not met its master yet; it asks again before its use.
        holder = board.claim(own) if self.claims else board.master()
        if holder is None or holder.run == own.run:
            return True
        if not self._cluster.is_master:  # Its master may have started again, with another run.
            if not self.meet(self._cluster.master):
                return False
            if self.identity.run == holder.run:
                return True
        raise ConfigError(
            f"{task} serves another run, that of {holder.place}, and not this task's, that of "
            f"{own.place}; end that run first; if it has ended, or its files are gone, start "
            f"{task.label} again; to continue it, give its --output-dir"
        )


def terms(config: TrainConfig, records: RecordSet) -> dict[str, str]:
    """Returns what decides the steps of all trainers: settings by flag, the code, the records."""
    settings = {
        flag_name(field.name): str(getattr(config, field.name))
        for field in dataclasses.fields(config)
        if flag_of(field).group in ("model", "training") or field.name in _OF_TRAINERS
        if field.name != "test_time_augmentation"
    }
    root = Path(__file__).parents[1]
    paths = sorted(root.rglob("*.py"))
    code = "".join(f"{one.relative_to(root)}{one.read_text('utf-8')}" for one in paths)
    return {
        "the program": f"version {VERSION}, {digest(code)[:_DIGEST_CHARS]}",
        **settings,
        "the training records": digest("\n".join(records.fingerprint()))[:_DIGEST_CHARS],
    }
