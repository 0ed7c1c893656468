"""Reads what `kubectl get --output=json` shows of a job: the object that stands for it, its pods.

The functions have no side effects. Texts are short and printable as UTF-8, since they reach the
terminal and the status file.
"""

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Optional

from launch.backends.kubernetes.manifests import CONTAINER, INDEX, TYPE
from launch.errors import HostError
from launch.record.result import ExitReason

_LONGEST_TEXT = 2000  # characters
_IMAGE = "look at `image:`, `image_pull_policy:` and `imagePullSecrets` in `pod:`"
# A reason that Kubernetes gives -> what to do about it.
_ADVICE = {
    "OOMKilled": "it needs more memory than `memory:` or `ps_memory:` allows",
    "ErrImagePull": _IMAGE,
    "InvalidImageName": _IMAGE,
    "DeadlineExceeded": "`deadline_secs:` under `kubernetes:` is the limit",
}
# Reasons why a container waits at first.
# Before and after ImagePullBackOff comes ErrImagePull, with what the registry answers.
_PASSING = (None, "ContainerCreating", "PodInitializing", "ImagePullBackOff")
# An eviction for which the pod itself is to blame.
_OWN_FAULT = re.compile("exceeds the (total )?limit|exceeded its local ephemeral storage limit")
_ADDED_LABEL = re.compile("controller-uid|job-name|batch.kubernetes.io/")
DELETED = "its pod was deleted"
_KILLED = (None, 137, 143)  # how a deleted pod ends: lost, or after SIGKILL or SIGTERM


@dataclass(frozen=True)
class Pod:
    """One pod at one moment.

    Attributes:
      task: the name of the pod's task, such as `worker/0`.
      name: the pod's name.
      uid: the pod's id, which differs from that of earlier and later pods.
      node: the node on which the pod runs; "" until that is known.
      state: `waiting`, `running` or `ended`.
      code: the container's exit code; None before its end, and for a pod that was evicted or lost.
      words: why the pod waits, is to end, or ended; "" if there is nothing to say.
      cause: what the end of this pod means for the job, if it is a failure.
      by_deletion: whether the pod was deleted, and nothing else explains its end.
      created: when the API server took the pod, as text that sorts by time.
    """

    task: str
    name: str
    uid: str
    node: str
    state: str
    code: Optional[int] = None
    words: str = ""
    cause: ExitReason = ExitReason.TASK_FAILED
    by_deletion: bool = False
    created: str = ""

    @property
    def is_disrupted(self) -> bool:
        """Whether Kubernetes, or whoever deleted the pod, ends or ended it."""
        return self.cause is not ExitReason.TASK_FAILED


@dataclass(frozen=True)
class Poll:
    """What one call of kubectl shows of a job.

    kubectl lists the pods first. Whoever deletes a job, its pods end after that, so that a poll
    that shows the end of a pod shows its reason, too.

    Attributes:
      pods: the pods that exist.
      jobs: the name of each task that has a Job -> the type of a condition that the Job has, such
        as `Complete`; "" if it has none.
      is_deleted: whether the Service that stands for the job does not exist, or was deleted and
        exists until its pods have ended.
    """

    pods: tuple[Pod, ...] = ()
    jobs: Mapping[str, str] = field(default_factory=dict)
    is_deleted: bool = False


def read_poll(found: str) -> Poll:
    """Returns what kubectl shows of a job: pods, and what stands for the job.

    Raises:
      HostError: it is no list of such objects.
    """
    with items_of(found) as items:
        named = [item for item in items if {TYPE, INDEX} <= {*item["metadata"].get("labels", ())}]
        pods = tuple(read_pod(item) for item in named if item["kind"] == "Pod")
        found_jobs = [item for item in named if item["kind"] == "Job"]
        jobs = {_task(job): _condition(job, "True").get("type", "") for job in found_jobs}
        owners = [item["metadata"] for item in items if item["kind"] == "Service"]
        exists = any("deletionTimestamp" not in metadata for metadata in owners)
        return Poll(pods, jobs, is_deleted=not exists)


def read_jobs(found: str) -> tuple[list[str], dict[str, dict[str, Any]]]:
    """Returns the uid of each Service, and task's name -> the manifest of its Job, as created.

    Raises:
      HostError: it is no list of such objects.
    """
    with items_of(found) as items:
        jobs = {_task(item): _as_created(item) for item in items if item["kind"] == "Job"}
        return [item["metadata"]["uid"] for item in items if item["kind"] == "Service"], jobs


def _as_created(job: dict[str, Any]) -> dict[str, Any]:
    """Returns a Job without what Kubernetes adds to it, and refuses in a new one."""

    def kept(found: dict[str, Any], *keys: str) -> dict[str, Any]:
        return {key: found[key] for key in keys if key in found}

    of_pod = job["spec"]["template"]["metadata"]
    labels = of_pod["labels"].items()
    of_pod["labels"] = {name: value for name, value in labels if not _ADDED_LABEL.match(name)}
    spec = kept(job["spec"], "completions", "backoffLimit", "ttlSecondsAfterFinished", "template")
    metadata = kept(job["metadata"], "name", "labels", "annotations")
    return {**kept(job, "apiVersion", "kind"), "metadata": metadata, "spec": spec}


def read_refusals(found: str) -> dict[str, str]:
    """Returns Job's name -> why no pod could be created, by `FailedCreate` events.

    Raises:
      HostError: it is no list of events.
    """
    with items_of(found) as items:
        # The pod that was refused has another name each time.
        told = {str(event["involvedObject"]["name"]): event["message"] for event in items}
        return {name: _text(words.rpartition("forbidden: ")[2]) for name, words in told.items()}


@contextmanager
def items_of(found: str) -> Iterator[list[dict[str, Any]]]:
    """Gives the objects that `kubectl get --output=json` has printed.

    Raises:
      HostError: these are none, or lack what the context reads of them.
    """
    try:
        yield json.loads(found)["items"]
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        raise HostError(f"kubectl get printed {found[:60]!r}, which cannot be read") from None


def read_pod(pod: dict[str, Any]) -> Pod:
    """Returns the state of a pod object of the API."""
    metadata, status = pod["metadata"], pod.get("status", {})
    containers = status.get("containerStatuses", ())
    ours = (found for found in containers if found["name"] == CONTAINER)
    container: dict[str, Any] = next(ours, {"state": {}})
    state = container["state"]
    ended = state.get("terminated")
    code = None if ended is None else int(ended["exitCode"])
    # Why Kubernetes ends or ended the pod.
    why = status if status.get("reason") else _condition(pod, "True", "DisruptionTarget")
    is_oom = ended is not None and ended.get("reason") == "OOMKilled"
    is_killed = not (why or is_oom) and code in _KILLED
    # A pod that was deleted after its end has no grace.
    has_grace = metadata.get("deletionGracePeriodSeconds") != 0
    by_deletion = is_killed and "deletionTimestamp" in metadata and has_grace
    if by_deletion:
        why = {"message": DELETED}
    words = _words(why)
    if ended is not None or status.get("phase") in ("Failed", "Succeeded"):
        now = "ended"
        words = "; ".join(filter(None, (words, _exit_words(ended)))) or "its pod failed"
    elif "running" in state:
        now = "running"
    else:
        now, waits = "waiting", state.get("waiting", {})
        if waits.get("reason") in _PASSING:
            waits = _condition(pod, "False", "PodScheduled")
        elif waits.get("reason") == "ErrImagePull":
            answer = waits.get("message", "").rpartition('": ')[2]
            waits = {**waits, "message": f"{container['image']}: {answer}"}
        words = words or _words(waits)
    is_late = why.get("reason") == "DeadlineExceeded"
    cause = ExitReason.TIME_LIMIT if is_late else ExitReason.PLATFORM
    if not why or _OWN_FAULT.search(why.get("message", "")):
        cause = ExitReason.TASK_FAILED
    names = (_task(pod), metadata["name"], metadata["uid"], pod.get("spec", {}).get("nodeName", ""))
    return Pod(*names, now, code, words, cause, by_deletion, metadata.get("creationTimestamp", ""))


def _task(found: dict[str, Any]) -> str:
    labels = found["metadata"]["labels"]
    return f"{labels[TYPE]}/{labels[INDEX]}"


def _condition(found: dict[str, Any], value: str, kind: str = "") -> dict[str, Any]:
    """Returns an object's condition with this value, of a type if one is given; {} if none."""
    conditions = found.get("status", {}).get("conditions", ())
    return next((c for c in conditions if c["status"] == value and kind in ("", c["type"])), {})


def _exit_words(ended: Optional[dict[str, Any]]) -> str:
    if ended is None:
        return ""
    reason = ended.get("reason")
    more = "" if reason in (None, "Error", "Completed") else f", {_words({'reason': reason})}"
    return f"exit code {ended['exitCode']}{more}"


def _words(found: dict[str, Any]) -> str:
    """Returns the reason and the message that Kubernetes gives, and what to do about it."""
    reason = _text(found.get("reason", ""))
    words = ": ".join(filter(None, (reason, _text(found.get("message", "")))))
    return f"{words}; {_ADVICE[reason]}" if reason in _ADVICE else words


def _text(value: str) -> str:
    return " ".join(value[:_LONGEST_TEXT].encode(errors="replace").decode().split())
