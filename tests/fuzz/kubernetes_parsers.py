"""The parsers of what kubectl prints: logs, events and pods."""

import json
from pathlib import Path

from launch.backends.kubernetes import kubectl, logs, pods
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
        "conditions": [{"type": "PodScheduled", "status": "False", "message": "no node"}],
    },
}  # fmt: skip


def _watch_pods(data: bytes, _: Path) -> None:
    for _kind, found in kubectl.watch_events(iter(data.splitlines(keepends=True))):
        pods.read_pod(found)


def _stamped(data: bytes, _: Path) -> None:
    log = logs.PodLog(pods.Pod("worker/0", "x", "1", "node0", "running"))
    for stamp, _line in kubectl.stamped_lines(iter(data.splitlines(keepends=True))):
        log.is_new(stamp)
    log.resume()


PARSERS = [
    Parser("kubectl-log", lambda: [b"2026-01-31T09:00:00.1Z x\ny\n"], _stamped),
    # kubectl writes these, not a host: what is no event or pod ends the launcher's thread.
    Parser(
        "kubectl-watch",
        lambda: [json.dumps({"type": "ADDED", "object": _POD}).encode() + b"\n"],
        _watch_pods,
        (ValueError, LookupError, TypeError, AttributeError, RecursionError),
        mutate.of_lines,
    ),
]
