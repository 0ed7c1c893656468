"""Reads the state of a task from its pod. The functions have no side effects."""

from dataclasses import dataclass
from functools import partial
from typing import Any, Optional

from launch.backends.kubernetes.manifests import CONTAINER

_TYPE, _INDEX = "training.kubeflow.org/replica-type", "training.kubeflow.org/replica-index"

# Reasons why a container waits: those that never pass, and those that may pass at another try.
_HOPELESS = ("InvalidImageName", "ErrImageNeverPull")
_STUCK = (
    "ErrImagePull",
    "ImagePullBackOff",
    "RegistryUnavailable",
    "CreateContainerConfigError",
    "CreateContainerError",
    "RunContainerError",
)
_ADVICE = {
    "OOMKilled": "it needs more memory than `memory:` or `ps_memory:` allows",
    "ErrImagePull": "look at `image:` and `image_pull_secrets:`",
    "ImagePullBackOff": "look at `image:` and `image_pull_secrets:`",
    "InvalidImageName": "look at `image:`",
    "ErrImageNeverPull": "load the image into every node, or change `image_pull_policy:`",
}


@dataclass(frozen=True)
class Pod:
    """One pod at one moment.

    Attributes:
      task: the name of the pod's task, such as `worker/0`.
      uid: the pod's id, which differs from that of earlier and later pods of the same name.
      node: the node on which the pod runs; "" until that is known.
      state: `waiting`, `running` or `ended`.
      code: the container's exit code; None before its end, and for a pod that was evicted or lost.
      words: why the pod waits or ended.
      stuck: whether the pod waits for a reason that seldom passes.
      hopeless: whether the pod waits for a reason that never passes.
      created: the time of creation by the API server's clock, such as `2026-01-31T09:00:00Z`.
    """

    task: str
    name: str
    uid: str
    node: str
    state: str
    code: Optional[int] = None
    words: str = ""
    stuck: bool = False
    hopeless: bool = False
    created: str = ""


def read_pod(pod: dict[str, Any]) -> Optional[Pod]:
    """Returns the state of a pod object of the API; None if the pod belongs to no task."""
    metadata, status = pod["metadata"], pod.get("status", {})
    labels = metadata.get("labels", {})
    if _TYPE not in labels or _INDEX not in labels:
        return None
    found = partial(
        Pod,
        f"{labels[_TYPE]}/{labels[_INDEX]}",
        metadata["name"],
        metadata["uid"],
        pod.get("spec", {}).get("nodeName", ""),
        created=metadata.get("creationTimestamp", ""),
    )
    containers = status.get("containerStatuses", [])
    state: dict[str, Any] = next(
        (one["state"] for one in containers if one["name"] == CONTAINER), {}
    )
    if "terminated" in state:
        code = state["terminated"]["exitCode"]
        return found("ended", code, _ended_words(code, state["terminated"].get("reason", "")))
    if status.get("phase") in ("Failed", "Succeeded"):
        words = ": ".join(filter(None, (status.get("reason", "Failed"), status.get("message"))))
        return found("ended", None, words)
    if "running" in state:
        return found("running")
    waiting = state.get("waiting", {})
    reason = waiting.get("reason", "")
    if reason:
        return found(
            "waiting",
            words=_with_advice(reason, waiting.get("message", "")),
            stuck=reason in _STUCK,
            hopeless=reason in _HOPELESS,
        )
    return found("waiting", words=_why_not_scheduled(status.get("conditions", [])))


def _ended_words(code: int, reason: str) -> str:
    words = f"exit code {code}"
    return words if reason in ("", "Error", "Completed") else f"{words}, {_with_advice(reason, '')}"


def _with_advice(reason: str, message: str) -> str:
    words = ": ".join(filter(None, (reason, " ".join(message.split()))))
    return f"{words}; {_ADVICE[reason]}" if reason in _ADVICE else words


def _why_not_scheduled(conditions: list[dict[str, Any]]) -> str:
    for condition in conditions:
        if condition["type"] == "PodScheduled" and condition["status"] == "False":
            message = " ".join(condition.get("message", "").split())
            return ": ".join(filter(None, (condition.get("reason", "not scheduled"), message)))
    return ""
