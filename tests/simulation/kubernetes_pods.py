"""A simulated pod, and how the API shows it."""

from dataclasses import dataclass, field
from typing import Any, Optional

_WAITING = {"ContainerCreating": "", "ImagePullBackOff": "Back-off pulling image"}


@dataclass
class SimPod:
    """A pod, as it really is.

    Attributes:
      waits: why its container waits; "" once that has started.
      code: the container's exit code, as the API shows it.
      why: why it really ended: `done`, `own`, `deleted` by somebody, `disrupted` by the platform,
        `launcher`, `operator`; "" before.
      ender: who deletes it; "" if nobody does.
      condition: reason and message of DisruptionTarget.
      evicted: the message of an eviction by its node; "" without one.
      lines: the log.
      readers: the streams that read the log.
      began: when its container started.
    """

    uid: str
    task: str
    node: str = ""
    waits: str = "ContainerCreating"
    code: Optional[int] = None
    why: str = ""
    ender: str = ""
    condition: Optional[tuple[str, str]] = None
    evicted: str = ""
    is_oom: bool = False
    exists: bool = True
    has_ended: bool = False
    lines: list[bytes] = field(default_factory=list)
    readers: list[Any] = field(default_factory=list)
    began: float = 0.0

    @property
    def name(self) -> str:
        """The name, which a later pod of the task has as well."""
        return f"sim-{self.task.replace('/', '-')}"

    @property
    def type(self) -> str:
        """The type of the task."""
        return self.task.split("/")[0]

    @property
    def is_lead(self) -> bool:
        """Whether the task is the master or chief."""
        return self.type in ("master", "chief")

    @property
    def has_started(self) -> bool:
        """Whether the container has started."""
        return not self.waits

    @property
    def runs(self) -> bool:
        """Whether the container runs."""
        return self.has_started and not self.has_ended

    def as_object(self) -> dict[str, Any]:
        """Returns the pod as the API shows it."""
        kind, _, index = self.task.partition("/")
        labels = {"training.kubeflow.org/replica-type": kind}
        labels["training.kubeflow.org/replica-index"] = index
        metadata: dict[str, Any] = {"name": self.name, "uid": self.uid, "labels": labels}
        if self.ender:
            metadata["deletionTimestamp"] = "2026-01-31T09:00:00Z"
        status: dict[str, Any] = {"phase": "Pending" if self.waits else "Running"}
        state: dict[str, Any] = {"running": {}}
        if self.waits:
            state = {"waiting": {"reason": self.waits, "message": _WAITING.get(self.waits, "")}}
        if self.has_ended:
            status["phase"] = "Failed" if self.code != 0 else "Succeeded"
            reason = "OOMKilled" if self.is_oom else "Error"
            state = {"terminated": {"exitCode": self.code, "reason": reason}}
        if self.evicted:
            status |= {"reason": "Evicted", "message": self.evicted}
        if self.condition is not None:
            reason, message = self.condition
            condition = {"type": "DisruptionTarget", "status": "True", "reason": reason}
            status["conditions"] = [{**condition, "message": message}]
        if self.node and not (self.has_ended and self.code is None):
            status["containerStatuses"] = [{"name": "tensorflow", "state": state}]
        return {
            "kind": "Pod", "metadata": metadata, "spec": {"nodeName": self.node}, "status": status
        }  # fmt: skip
