"""A simulated TFJob, and the training operator."""

from typing import Any, Optional

from launch.cluster.model import Limits
from tests.simulation.kubernetes_nodes import Nodes
from tests.simulation.world import World


class Cluster(Nodes):
    """The TFJob, its operator and its pods.

    Attributes:
      tasks: the names of the tasks.
      is_cancelled: whether the TFJob was deleted before anything else went wrong.
      sealed: when it was first certain that the job ends, to all who look.
      enders: who has deleted the TFJob, or asked for it.
      makes_anew: whether the operator replaces pods that a signal or the platform ended.
      operator_waits: until when the operator does nothing.
    """

    def __init__(self, world: World, tasks: list[str], limits: Limits) -> None:
        super().__init__(world, limits)
        self.tasks = tasks
        self.exists = self.is_cancelled = self.is_suspended = self.was_suspended = False
        self.sealed: Optional[float] = None
        self.enders: list[str] = []
        self.conditions: dict[str, str] = {}
        self.makes_anew = True
        self.operator_waits = 0.0
        # How long a queue holds the job back.
        self.held_secs = world.rng.choice((0.0, 0.0, 0.0, 0.2, 5.0))
        self._is_foreground = self._is_due = False

    def _seal(self) -> None:
        self.sealed = self._world.now if self.sealed is None else self.sealed

    # What follows is the TFJob.

    def create(self) -> None:
        """Creates the TFJob."""
        self.exists = True
        self.wake_operator()

    def tfjob(self) -> dict[str, Any]:
        """Returns the TFJob as the API shows it."""
        metadata = {"name": "sim"}
        if self._is_foreground:
            metadata["deletionTimestamp"] = "2026-01-31T09:00:00Z"
        conditions = [
            {"type": kind, "status": "True", "message": words}
            for kind, words in self.conditions.items()
        ]
        return {"kind": "TFJob", "metadata": metadata, "status": {"conditions": conditions}}

    def delete_job(self, ender: str, *, is_foreground: bool = False) -> str:
        """Deletes the TFJob; then its pods are deleted. Returns what kubectl prints."""
        if not self.exists:
            return ""
        self.enders.append(ender)
        for pod in self.existing():
            self._world.later(self._world.rng.uniform(0.1, 1.0), self.delete, pod, ender)
        if is_foreground:
            self._is_foreground = True
            self.on_change("tfjob", "MODIFIED", self.tfjob())
            self._world.later(0.5, self._end_foreground)
        else:
            self._remove_job()
        return 'tfjob.kubeflow.org "sim" deleted\n'

    def suspend(self) -> None:
        """Suspends the TFJob."""
        self.harm()
        self.is_suspended = True
        self.wake_operator()

    def _end_foreground(self) -> None:
        if self.exists and self.existing():
            self._world.later(0.5, self._end_foreground)
        elif self.exists:
            self._remove_job()

    def _remove_job(self) -> None:
        self.exists = False
        self._seal()
        self.on_change("tfjob", "DELETED", self.tfjob())

    # What follows is the operator.

    def wake_operator(self) -> None:
        """Lets the operator look at the pods soon."""
        if not self._is_due:
            self._is_due = True
            self._world.later(self._world.rng.choice((0.05, 0.3, 1.5)), self._reconcile)

    def _reconcile(self) -> None:
        self._is_due = False
        if self._world.now < self.operator_waits:
            self.wake_operator()
            return
        if not self.exists or self._is_foreground:
            return
        if "Succeeded" in self.conditions or "Failed" in self.conditions:
            return
        if self.held_secs:
            self._hold(self.held_secs)
            return
        if self.is_suspended:
            self._suspend()
            return
        for task in self.tasks:
            self._look_at(task)
        if "Succeeded" in self.conditions or "Failed" in self.conditions:
            self._world.say("the TFJob has", *self.conditions)
            self._seal()
            self.on_change("tfjob", "MODIFIED", self.tfjob())
            if not any(task.startswith("evaluator") for task in self.tasks):
                for pod in self.existing():
                    if not pod.has_ended:
                        self.delete(pod, "operator")

    def _hold(self, secs: float) -> None:
        """Keeps the TFJob suspended from its start, as a queue does."""
        if "Suspended" not in self.conditions:
            self._world.say("the TFJob is held back for", secs)
            self.conditions["Suspended"] = "TFJob sim is suspended."
            self.on_change("tfjob", "MODIFIED", self.tfjob())
            self._world.later(secs, self._release)

    def _release(self) -> None:
        self.held_secs = 0.0
        del self.conditions["Suspended"]
        if self.exists:
            self.on_change("tfjob", "MODIFIED", self.tfjob())
            self.wake_operator()

    def _suspend(self) -> None:
        if not self.was_suspended:
            self.was_suspended = True
            self.conditions["Suspended"] = "TFJob sim is suspended."
            self._seal()
            self.on_change("tfjob", "MODIFIED", self.tfjob())
            for pod in self.existing():
                self.delete(pod, "somebody")

    def _look_at(self, task: str) -> None:
        pod = next((pod for pod in self.existing() if pod.task == task), None)
        if pod is None:
            self.create_pod(task)
        elif pod.has_ended and pod.code == 0 and pod.is_lead:
            self.conditions["Succeeded"] = "TFJob sim successfully completed."
        elif self.makes_anew and pod.has_ended and (pod.code is None or pod.code >= 128):
            self.delete(pod, "operator")
        elif pod.has_ended and pod.code != 0:
            self.conditions["Failed"] = f"TFJob sim has failed because 1 {pod.type} failed."
