"""Reads the state of a TFJob, and warnings about pods. The functions have no side effects."""

from dataclasses import dataclass
from typing import Any, Optional

from launch.backends.kubernetes.kubectl import UnreadableError, mapping, sequence, text

_LATE = "active longer than specified deadline"  # in the operator's message


@dataclass(frozen=True)
class TFJobState:
    """A TFJob at one moment.

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


def read_tfjob(job: Any) -> TFJobState:
    """Returns the state of a TFJob object of the API.

    Raises:
      UnreadableError: it is no TFJob.
    """
    kind = text(job, "kind")
    if not isinstance(job, dict) or kind not in ("", "TFJob"):
        raise UnreadableError(f"kubectl get tfjobs printed an object of the kind {kind or '?'}")
    true = {
        text(condition, "type"): text(condition, "message")
        for condition in sequence(job, "status", "conditions")
        if text(condition, "status") == "True"
    }
    return TFJobState(
        succeeded="Succeeded" in true,
        failed=true.get("Failed"),
        is_late=_LATE in true.get("Failed", ""),
        suspended="Suspended" in true,
        deleted="deletionTimestamp" in mapping(job, "metadata"),
    )


def read_warning(event: Any) -> Warned:
    """Returns the warning of an event object of the API."""
    words = ": ".join(filter(None, (text(event, "reason"), text(event, "message"))))
    time = text(event, "lastTimestamp") or text(event, "eventTime")
    time = time or text(event, "metadata", "creationTimestamp")
    about = mapping(event, "involvedObject")
    return Warned(text(about, "name"), text(about, "uid"), words, time)
