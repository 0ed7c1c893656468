"""Whatever kubectl prints, reading it gives a result or one of the documented errors."""

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from launch.backends.kubernetes.fields import UnreadableError
from launch.backends.kubernetes.log_place import LogPlace
from launch.backends.kubernetes.objects import read_tfjob, read_warning
from launch.backends.kubernetes.pods import Pod, read_pod
from launch.backends.kubernetes.streams import LONGEST_PART, stamped_lines, watch_events
from launch.backends.kubernetes.watches import pod_events, tfjob_events, warnings
from launch.record.outcome import Cause

LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=8),
    st.sampled_from(["True", "Failed", "DisruptionTarget", "PodScheduled", "\ud800", "x\ny"]),
)
KEYS = st.sampled_from(
    ["kind", "type", "object", "metadata", "name", "uid", "labels", "status", "phase", "reason",
     "message", "conditions", "spec", "nodeName", "containerStatuses", "state", "terminated",
     "initContainerStatuses",
     "exitCode", "running", "waiting", "deletionTimestamp", "involvedObject", "lastTimestamp",
     "eventTime", "creationTimestamp", "training.kubeflow.org/replica-type",
     "training.kubeflow.org/replica-index"]
)  # fmt: skip
ANYTHING = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(KEYS | st.text(max_size=4), inner, max_size=5)
    ),
    max_leaves=20,
)


def damaged(whole: Any) -> "st.SearchStrategy[Any]":
    """A value whose parts may be replaced by anything, or missing."""
    if isinstance(whole, dict):
        keys = {key: damaged(value) for key, value in whole.items()}
        kept = st.fixed_dictionaries({}, optional=keys)
        return st.one_of(kept, kept, kept, ANYTHING)
    if isinstance(whole, list):
        inner = st.lists(st.one_of([damaged(one) for one in whole]), max_size=3)
        return st.one_of(inner, inner, inner, ANYTHING)
    return st.one_of(st.just(whole), st.just(whole), st.just(whole), LEAVES)


LABELS = {"training.kubeflow.org/replica-type": "ps", "training.kubeflow.org/replica-index": "0"}
CONDITION = {
    "type": "DisruptionTarget",
    "status": "True",
    "reason": "PreemptionByScheduler",
    "message": "preempting",
}
POD = {
    "kind": "Pod",
    "metadata": {"name": "job-ps-0", "uid": "1", "labels": LABELS, "deletionTimestamp": "x"},
    "spec": {"nodeName": "n1"},
    "status": {
        "phase": "Failed",
        "reason": "Evicted",
        "message": "The node was low on memory.",
        "conditions": [CONDITION, {**CONDITION, "type": "PodScheduled", "status": "False"}],
        "containerStatuses": [
            {"name": "tensorflow", "state": {"terminated": {"exitCode": 3, "reason": "Error"}}},
            {"name": "tensorflow", "state": {"waiting": {"reason": "ErrImagePull"}}},
            {"name": "tensorflow", "state": {"running": {}}},
        ],
        "initContainerStatuses": [
            {"name": "check-folders", "state": {"terminated": {"exitCode": 0, "message": "x"}}},
            {"name": "check-folders", "state": {"waiting": {"reason": "ErrImagePull"}}},
        ],
    },
}
TFJOB = {
    "kind": "TFJob",
    "metadata": {"name": "job", "deletionTimestamp": "x"},
    "status": {"conditions": [{**CONDITION, "type": "Failed"}, {**CONDITION, "type": "Succeeded"}]},
}
EVENT = {
    "involvedObject": {"name": "job-ps-0", "uid": "1"},
    "reason": "FailedMount",
    "message": "no such claim",
    "lastTimestamp": "2026-01-31T09:00:00Z",
}


def assert_printable(*texts: str) -> None:
    for text in texts:
        assert text.encode()
        assert "\n" not in text
        assert len(text) < 10_000


@settings(deadline=None)
@given(st.one_of(damaged(POD), ANYTHING))
def test_any_pod_is_read_or_refused(found: Any) -> None:
    try:
        pod = read_pod(found)
    except UnreadableError as error:
        assert_printable(str(error))
        return
    if pod is not None:
        assert pod.state in ("waiting", "running", "ended")
        assert pod.code is None or 0 <= pod.code <= 255
        assert pod.name
        assert pod.uid
        assert "".join((pod.task, pod.name, pod.uid, pod.node, pod.words, pod.disruption)).encode()


@settings(deadline=None)
@given(st.one_of(damaged(TFJOB), ANYTHING))
def test_any_tfjob_is_read_or_refused(found: Any) -> None:
    try:
        job = read_tfjob(found)
    except UnreadableError as error:
        assert_printable(str(error))
        return
    if job.failed is not None:
        assert "".join(("reason: ", job.failed)).encode()


@settings(deadline=None)
@given(st.one_of(damaged(EVENT), ANYTHING))
def test_any_event_is_read(found: Any) -> None:
    warned = read_warning(found)
    assert "".join(("words: ", warned.words, warned.about, warned.uid, warned.time)).encode()


@settings(deadline=None)
@given(st.lists(st.one_of(st.binary(max_size=40), ANYTHING.map(lambda v: json.dumps(v).encode()))))
def test_any_output_of_a_watch_is_read_or_refused(output: list[bytes]) -> None:
    for split in (watch_events, pod_events, tfjob_events, warnings("job")):
        try:
            for _ in split(iter([line + b"\n" for line in output])):
                pass
        except UnreadableError as error:
            assert_printable(str(error))


@settings(deadline=None)
@given(st.lists(st.binary(max_size=60)))
def test_any_output_of_a_log_is_read(parts: list[bytes]) -> None:
    place = LogPlace()
    for _ in range(2):
        place.resume()
        for part in stamped_lines(iter(parts)):
            text = place.take(part)
            assert text is None or len(text) <= LONGEST_PART
        assert place.since.isascii()


STAMPS = st.sampled_from([f"2026-01-31T09:00:0{i}.{j}Z" for i in range(4) for j in range(3)])


@settings(deadline=None)
@given(st.lists(STAMPS, min_size=1, max_size=12), st.lists(st.integers(1, 600), max_size=4))
def test_each_line_comes_once_however_clocks_and_connections_break(
    stamps: list[str], cuts: list[int]
) -> None:
    """Stamps in any order, but each instant belongs to one run of lines, as on a real clock."""
    unique = [stamp for i, stamp in enumerate(stamps) if i == 0 or stamp not in stamps[:i]]
    log = b"".join(f"{stamp} line {i}\n".encode() for i, stamp in enumerate(unique))
    place = LogPlace()
    found: list[bytes] = []
    for end in [*cuts, len(log)]:
        place.resume()
        pieces = log[:end].splitlines(keepends=True)
        texts = [place.take(part) for part in stamped_lines(iter(pieces))]
        found += [text for text in texts if text is not None]
    assert found == [f"line {i}".encode() for i in range(len(unique))]


def test_a_whole_pod_is_read() -> None:
    assert read_pod(POD) == Pod(
        "ps/0",
        "job-ps-0",
        "1",
        "n1",
        "ended",
        code=3,
        words="Evicted: The node was low on memory.; exit code 3",
        deleted=True,
        cause=Cause.PLATFORM,
        disruption="Evicted: The node was low on memory.",
    )
