"""What kubectl prints is read whole; what may be damaged in it, `tests/fuzz` damages."""

from hypothesis import given, settings
from hypothesis import strategies as st

from launch.backends.kubernetes.log_place import LogPlace
from launch.backends.kubernetes.pods import Pod, read_pod
from launch.backends.kubernetes.streams import stamped_lines
from launch.record.outcome import Cause

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
