"""The handshake: tasks belong to one job and run, and train alike, before they use each other.

Each task writes its identity on its own server (`cifar10.guard.server`), where others read it. The
chief writes its own one on each server that it uses, if it is the first: so of two chiefs only one
has the servers. A process that is started again has an empty server.
"""

import contextlib
import dataclasses
import time
from collections.abc import Collection, Iterable
from pathlib import Path

from cifar10.cluster.spec import TOKEN, Cluster, Task, digest
from cifar10.config.settings import flag_name, settings_of
from cifar10.config.train_config import TrainConfig
from cifar10.errors import ConfigError
from cifar10.guard.peers import Mismatch
from cifar10.guard.server import CHIEF, ENDED, TASK, NoAnswer, Registry, TaskIdentity, registry_of
from cifar10.input.records import RecordSet
from cifar10_program import VERSION

# What decides a step besides the settings of the model and of training: settings and packages.
_SETTINGS = ("precision", "sync", "replicas_to_aggregate", "replication", "ps_transfer")
_PACKAGES = ("step", "ops", "kernels", "optim", "models", "input")
_DIGEST_CHARS = 8
_ASKED_SECS = 2.0  # for the chief, which asks each second, and then says what differs, too


def settings_that_must_match(config: TrainConfig, records: RecordSet) -> dict[str, str]:
    """Returns what decides the steps of all trainers: settings by flag, the code, the records."""
    settings = {
        flag_name(name): str(getattr(config, name))
        for name, setting in settings_of(type(config)).items()
        if setting.group in ("model", "training") or name in _SETTINGS
        if name != "test_time_augmentation"
    }
    root = Path(__file__).parents[1]
    # Editors keep files beside those that they edit, whose names begin with a dot.
    paths = sorted(path for name in _PACKAGES for path in (root / name).glob("**/[!.]*.py"))
    code = "".join(f"{path.relative_to(root)}{path.read_text('utf-8')}" for path in paths)
    return {
        "the program": f"version {VERSION}, {digest(code)[:_DIGEST_CHARS]}",
        **settings,
        "the training records": digest("\n".join(records.fingerprint()))[:_DIGEST_CHARS],
    }


def tell_end(serving: Iterable[Task], chief: TaskIdentity) -> None:
    """Tells tasks that serve this chief's run of its end; passes over who does not answer."""
    for task in serving:
        # It may have ended, or another program may have its port.
        with contextlib.suppress(NoAnswer, ConfigError), registry_of(task) as registry:
            own = registry.read(TASK)
            if own and own.job == chief.job and registry.write(CHIEF, chief).run == chief.run:
                registry.write(ENDED, chief)


@dataclasses.dataclass(eq=False)
class Handshake:
    """Asks other tasks who they are, and makes the chief the owner of those that serve it.

    Attributes:
      cluster: the cluster and this process's task in it.
      serving: the tasks that serve a run. The chief claims them, see `claims`; a worker uses
        them only if they serve its chief's run.
      identity: this task's identity, with its run as far as it is known: a chief knows its own,
        others learn it from the chief.
      claims: whether this task claims serving tasks when it meets them; else it only looks. A chief
        begins to claim with its first session: if one task refuses it before, it has claimed no
        other one, which another run may need.
    """

    cluster: Cluster
    serving: Collection[Task]
    identity: TaskIdentity
    claims: bool = False
    _met: set[Task] = dataclasses.field(default_factory=set, init=False)

    def meet(self, task: Task) -> bool:
        """Asks a task who it is.

        If a task of another job answers where one of this job was before, it may end by itself, and
        the right one may come back. So it counts as no answer, unless it would be used at once.

        Returns:
          Whether the task has answered and may be used. A server that does not say who it is has
          just started, or is another program's, and counts as one that does not answer.

        Raises:
          Mismatch: this is the chief, and a worker trains otherwise; the right one may come.
          ConfigError: the task belongs to another job or another run, or it is the chief, and this
            worker trains otherwise.
        """
        try:
            with registry_of(task) as registry:
                may_be_used = self._check(task, registry)
                self._met.update([task] * may_be_used)
                return may_be_used
        except NoAnswer:
            return False
        except Mismatch as error:
            if self.cluster.is_master:
                raise
            time.sleep(_ASKED_SECS)
            raise ConfigError(str(error)) from None
        except ConfigError:
            if task in self._met and task not in self.serving:
                return False
            raise

    def _check(self, task: Task, registry: Registry) -> bool:
        """Returns what `meet` does, and raises Mismatch in a worker, too."""
        own, found = self.identity, registry.read(TASK)
        if found is None:
            return False
        if found.job != own.job:
            both = f"it has {found.job}, this task has {own.job}"
            way_out = "correct the address, or give all tasks of a job the same cluster and"
            raise ConfigError(f"{task} belongs to another job: {both}; {way_out} {TOKEN}")
        if found.role != task.role:
            labels = {known.role: known.label for known in self.cluster.tasks}
            other = labels.get(found.role, found.role)
            raise ConfigError(f"{task} is {other} of this job; correct the addresses")
        for name, value in own.must_match.items() if found.must_match else ():
            if value != (theirs := found.must_match.get(name)):
                both = f"{name} is {value} for {self.cluster.label}, but {theirs} for {task}"
                way_out = "start all trainers with the same program, settings and records"
                raise Mismatch(f"{both}; {way_out}")
        if task == self.cluster.master:  # From it, others learn the run.
            self.identity = dataclasses.replace(own, run=found.run, output_dir=found.output_dir)
        # A worker that has not met its chief yet asks again before it uses a serving task.
        if task not in self.serving or not own.run:
            return True
        holder = registry.write(CHIEF, own) if self.claims else registry.read(CHIEF)
        if holder is None or holder.run == own.run:
            return True
        if not self.cluster.is_master:
            # Its chief may have started again, with another run.
            if not self.meet(self.cluster.master):
                return False
            if self.identity.run == holder.run:
                return True
        raise ConfigError(
            f"{task} serves another run, that of {holder.output_dir}, and not this task's, that of "
            f"{own.output_dir}; end that run first; if it has ended, or its files are gone, start "
            f"{task.label} again; to continue it, give its --output-dir"
        )
