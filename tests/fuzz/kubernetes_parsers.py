"""The parsers of what kubectl prints: logs, events and pods."""

import contextlib
import json
from pathlib import Path

from launch.backends.kubernetes import objects, pods, streams
from launch.backends.kubernetes.kubectl import UnreadableError
from launch.backends.kubernetes.log_place import LogPlace
from tests.fuzz import mutate
from tests.fuzz.parser import Parser

_POD = {
    "metadata": {
        "name": "x-worker-0", "uid": "1", "creationTimestamp": "2026-01-31T09:00:00Z",
        "labels": {
            "training.kubeflow.org/replica-type": "worker",
            "training.kubeflow.org/replica-index": "0",
        },
    },
    "spec": {"nodeName": "node0"},
    "status": {
        "phase": "Running",
        "containerStatuses": [
            {"name": "tensorflow", "state": {"terminated": {"exitCode": 1, "reason": "Error"}}}
        ],
        "initContainerStatuses": [
            {"name": "check-folders", "state": {"terminated": {"exitCode": 0, "message": "x"}}}
        ],
        "conditions": [{"type": "PodScheduled", "status": "False", "message": "no node"}],
    },
}  # fmt: skip


def _watch_pods(data: bytes, _: Path) -> None:
    for _kind, found in streams.watch_events(iter(data.splitlines(keepends=True))):
        for read in (pods.read_pod, objects.read_tfjob, objects.read_warning):
            with contextlib.suppress(UnreadableError):
                read(found)


def _log(data: bytes, _: Path) -> None:
    place = LogPlace()
    for _connection in range(2):
        for part in streams.stamped_lines(iter(data.splitlines(keepends=True))):
            place.take(part)
        assert isinstance(place.since, str)
        place.resume()
    place.rest()


PARSERS = [
    Parser("kubectl-log", lambda: [b"2026-01-31T09:00:00.1Z x\ny\n"], _log),
    Parser(
        "kubectl-watch",
        lambda: [json.dumps({"type": "ADDED", "object": _POD}).encode() + b"\n"],
        _watch_pods,
        (UnreadableError,),
        mutate.of_lines,
    ),
]
