"""Reads the state of a job from what one poll of kubectl shows: its object, its pods, warnings.

The functions have no side effects.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any, Optional

from launch.backends.kubernetes.kubectl import UnreadableError, mapping, parsed, sequence, text
from launch.backends.kubernetes.manifests import INDEX, TYPE
from launch.backends.kubernetes.pod_template import CHECK, CONTAINER
from launch.record.outcome import Cause

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
    "DeadlineExceeded": "`deadline_secs:` under `kubernetes:` is the limit",
}
# Why Kubernetes itself ended a pod: reasons of the pod's status, and of its condition
# DisruptionTarget, which can have other reasons as well.
_DISRUPTIONS = {
    "Evicted": Cause.PLATFORM,
    "Preempting": Cause.PREEMPTED,
    "Terminated": Cause.PLATFORM,  # the node is shut down in order
    "Shutdown": Cause.PLATFORM,
    "NodeShutdown": Cause.PLATFORM,
    "NodeAffinity": Cause.PLATFORM,
    "UnexpectedAdmissionError": Cause.PLATFORM,
    "NodeLost": Cause.HOST_LOST,
    "PreemptionByScheduler": Cause.PREEMPTED,
    "DeadlineExceeded": Cause.TIME_LIMIT,
    "DeletionByPodGC": Cause.HOST_LOST,  # its node does not exist any more
}
# An eviction for which the pod itself is to blame.
_OWN_FAULT = re.compile(r"exceeds the (total )?limit|exceeded its local ephemeral storage limit")


_LATE = "active longer than specified deadline"  # in the operator's message


@dataclass(frozen=True)
class JobState:
    """The object that stands for a job, such as its TFJob, at one moment.

    Attributes:
      succeeded: whether its master or chief has ended with success.
      failed: why it has failed, in the operator's words; None if it has not.
      is_late: whether it has failed because its `activeDeadlineSeconds` are over.
      suspended: whether somebody has suspended it, so that it has no pods.
      deleted: whether it was deleted, and exists until its pods have ended.
    """

    succeeded: bool = False
    failed: Optional[str] = None
    is_late: bool = False
    suspended: bool = False
    deleted: bool = False


@dataclass(frozen=True)
class Warned:
    """A warning of an event object.

    Attributes:
      about: the name of the object that the warning is about.
      uid: that object's uid.
      words: the warning.
      time: when it was given last, such as `2026-01-31T09:00:00Z`.
    """

    about: str
    uid: str
    words: str
    time: str


@dataclass(frozen=True)
class Pod:
    """One pod at one moment.

    Attributes:
      task: the name of the pod's task, such as `worker/0`.
      name: the pod's name, which a later pod of the same task has as well.
      uid: the pod's id, which differs from that of earlier and later pods of the same name.
      node: the node on which the pod runs; "" until that is known.
      state: `waiting`, `running` or `ended`.
      code: the container's exit code; None before its end, and for a pod that was evicted or lost.
      words: why the pod waits or ended.
      stuck: whether the pod waits for a reason that seldom passes.
      hopeless: whether the pod waits for a reason that never passes.
      deleted: whether the pod was deleted, and perhaps still runs.
      is_oom: whether the container was killed for lack of memory.
      has_log: whether the task's container has started; it does not if the check of the folders
        fails.
      cause: what a failure of this pod means for the job.
      disruption: why Kubernetes ends or ended the pod, in words; "" if it did not.
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
    deleted: bool = False
    is_oom: bool = False
    has_log: bool = True
    cause: Cause = Cause.TASK_FAILED
    disruption: str = ""


@dataclass(frozen=True)
class Poll:
    """What one call of kubectl shows of a job.

    kubectl lists the pods first. Whoever deletes or suspends a job, its pods end after that, so
    that a poll that shows the end of a pod shows its reason, too.

    Attributes:
      job: the state of the object that stands for the job; None if it does not exist.
      pods: the pods that exist.
      unreadable: what could not be read, in words.
    """

    job: Optional[JobState]
    pods: tuple[Pod, ...] = ()
    unreadable: tuple[str, ...] = ()


def read_poll(found: str, kind: str, name: str) -> Poll:
    """Returns what `kubectl get --output=json` shows of a job.

    Args:
      found: kubectl's output.
      kind: the kind of the object that stands for the job.
      name: its name.

    Raises:
      UnreadableError: it is no list of objects.
    """
    listed = parsed(found, "kubectl get")
    if text(listed, "kind") != "List":
        raise UnreadableError(f"kubectl get printed {found[:60]!r}, which is no list")
    job: Optional[JobState] = None
    pods, unreadable = [], []
    for one in sequence(listed, "items"):
        if text(one, "kind") == kind and text(one, "metadata", "name") == name:
            job = read_job(one)
        elif text(one, "kind") == "Pod":
            try:
                pod = read_pod(one)
            except UnreadableError as error:
                unreadable.append(str(error))
            else:
                pods += [pod] if pod is not None else []
    return Poll(job, tuple(pods), tuple(unreadable))


def read_job(job: Any) -> JobState:
    """Returns the state of the object that stands for a job."""
    true = {
        text(condition, "type"): text(condition, "message")
        for condition in sequence(job, "status", "conditions")
        if text(condition, "status") == "True"
    }
    return JobState(
        succeeded="Succeeded" in true,
        failed=true.get("Failed"),
        is_late=_LATE in true.get("Failed", ""),
        # The condition `Suspended` may still be there when the pods of a resumed job are.
        suspended=mapping(job, "spec", "runPolicy").get("suspend") is True,
        deleted="deletionTimestamp" in mapping(job, "metadata"),
    )


def read_warnings(found: str, names: Iterable[str]) -> list[Warned]:
    """Returns the warnings about objects of these names and the pods of these Jobs, oldest first.

    Raises:
      UnreadableError: `found`, the output of `kubectl get events`, is not JSON.
    """
    known = set(names)
    warnings = map(_read_warning, sequence(parsed(found, "kubectl get events"), "items"))
    ours = (  # The pod of a Job has the Job's name and five letters.
        one
        for one in warnings
        if one.words and (one.about in known or one.about.rpartition("-")[0] in known)
    )
    return sorted(ours, key=lambda one: one.time)


def _read_warning(event: Any) -> Warned:
    words = ": ".join(filter(None, (text(event, "reason"), text(event, "message"))))
    time = text(event, "lastTimestamp") or text(event, "eventTime")
    time = time or text(event, "metadata", "creationTimestamp")
    about = mapping(event, "involvedObject")
    return Warned(text(about, "name"), text(about, "uid"), words, time)


def read_pod(pod: Any) -> Optional[Pod]:
    """Returns the state of a pod object of the API; None if the pod belongs to no task.

    Raises:
      UnreadableError: it has no name or no uid.
    """
    metadata, status = mapping(pod, "metadata"), mapping(pod, "status")
    task_type, index = text(metadata, "labels", TYPE), text(metadata, "labels", INDEX)
    if not task_type or not index:
        return None
    name, uid = text(metadata, "name"), text(metadata, "uid")
    if not name or not uid:
        raise UnreadableError(f"kubectl get pods printed a pod without {'uid' if name else 'name'}")
    cause, disruption = _disruption(status)
    found = partial(
        Pod,
        f"{task_type}/{index}",
        name,
        uid,
        text(pod, "spec", "nodeName"),
        deleted="deletionTimestamp" in metadata,
        cause=cause,
        disruption=disruption,
    )
    checks = _state(status, "initContainerStatuses", CHECK)
    checked = _exit_code(checks)
    if checked:
        said = text(checks, "terminated", "message")
        words = said or f"{CHECK}: exit code {checked}"
        return found("ended", checked, disruption or words, has_log=False)
    state = _state(status, "containerStatuses", CONTAINER)
    if checked is None and text(checks, "waiting", "reason"):
        state = checks  # its image cannot be had
    code = _exit_code(state)
    if code is not None or text(status, "phase") in ("Failed", "Succeeded"):
        reason = text(state, "terminated", "reason")
        words = _ended_words(code, reason, status, disruption)
        return found("ended", code, words, is_oom=reason == "OOMKilled")
    if isinstance(state.get("running"), dict):
        return found("running")
    return _waiting(found, state, status)


def _state(status: dict[str, Any], key: str, name: str) -> dict[str, Any]:
    """Returns the state of the container `name` in the list `key`; {} if it has none."""
    containers = sequence(status, key)
    return next((mapping(one, "state") for one in containers if text(one, "name") == name), {})


def _waiting(found: "partial[Pod]", state: dict[str, Any], status: dict[str, Any]) -> Pod:
    reason = text(state, "waiting", "reason")
    if not reason:
        return found("waiting", words=_why_not_scheduled(status))
    return found(
        "waiting",
        words=_with_advice(reason, text(state, "waiting", "message")),
        stuck=reason in _STUCK,
        hopeless=reason in _HOPELESS,
    )


def _exit_code(state: dict[str, Any]) -> Optional[int]:
    """Returns a container's exit code, 255 for an impossible one; None before its end."""
    if not isinstance(state.get("terminated"), dict):
        return None
    code = state["terminated"].get("exitCode")
    is_valid = isinstance(code, int) and not isinstance(code, bool) and 0 <= code <= 255
    return code if is_valid else 255


def _disruption(status: dict[str, Any]) -> tuple[Cause, str]:
    """Returns the cause of a failure of the pod, and why Kubernetes ended it, in words."""
    reason, message = text(status, "reason"), text(status, "message")
    if reason not in _DISRUPTIONS:
        for condition in sequence(status, "conditions"):
            is_true = text(condition, "status") == "True"
            if text(condition, "type") == "DisruptionTarget" and is_true:
                reason = text(condition, "reason") or "DisruptionTarget"
                message = text(condition, "message")
                return _DISRUPTIONS.get(reason, Cause.PLATFORM), _with_advice(reason, message)
        return Cause.TASK_FAILED, ""
    cause = Cause.TASK_FAILED if _OWN_FAULT.search(message) else _DISRUPTIONS[reason]
    return cause, _with_advice(reason, message)


def _ended_words(code: Optional[int], reason: str, status: dict[str, Any], disruption: str) -> str:
    if code is None:
        return disruption or _with_advice(
            text(status, "reason") or "Failed", text(status, "message")
        )
    words = f"exit code {code}"
    if reason not in ("", "Error", "Completed"):
        words = f"{words}, {_with_advice(reason, '')}"
    return f"{disruption}; {words}" if disruption else words


def _with_advice(reason: str, message: str) -> str:
    words = ": ".join(filter(None, (reason, message)))
    return f"{words}; {_ADVICE[reason]}" if reason in _ADVICE else words


def _why_not_scheduled(status: dict[str, Any]) -> str:
    for condition in sequence(status, "conditions"):
        is_false = text(condition, "status") == "False"
        if text(condition, "type") == "PodScheduled" and is_false:
            return _with_advice(
                text(condition, "reason") or "not scheduled", text(condition, "message")
            )
    return ""
