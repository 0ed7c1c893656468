"""What a pod of a TFJob says of its task. Pure."""

from dataclasses import dataclass
from functools import partial
from typing import Any, Optional

from launch.backends.kubernetes.manifests import CONTAINER

_TYPE, _INDEX = "training.kubeflow.org/replica-type", "training.kubeflow.org/replica-index"

# Why a container waits: what another try will not mend, and what it might.
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
      task: `worker/0`.
      uid: tells it from one of the same name, before and after it.
      node: where it runs; "" until that is known.
      state: waiting, running or ended.
      code: of its container, once it has ended; None if there is none: it was evicted or lost.
      words: why it waits or ended.
      stuck: whether it waits for something that seldom comes.
      hopeless: whether it waits for something that never comes.
      created: when, as the API server's clock has it: `2026-01-31T09:00:00Z`.
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
    """Reads a pod as the API shows it; None if it is no task's."""
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
