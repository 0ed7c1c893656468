"""The parsers of what kubectl prints: logs, events, jobs and pods."""

import json
from pathlib import Path

from launch.backends.kubernetes import state
from launch.backends.kubernetes.logs import PodLog
from launch.backends.kubernetes.state import Pod, UnreadableError
from tests.fuzz import mutate
from tests.fuzz.parser import Parser

_POD = {
    "kind": "Pod",
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


_JOB = {
    "kind": "TFJob", "metadata": {"name": "x"},
    "status": {"conditions": [{"type": "Failed", "status": "True", "message": "x"}]},
}  # fmt: skip
_WARNING = {
    "involvedObject": {"name": "x", "uid": "1"}, "reason": "FailedCreate", "message": "no",
    "lastTimestamp": "2026-01-31T09:00:00Z",
}  # fmt: skip


def _poll(data: bytes, _: Path) -> None:
    state.read_poll(data.decode(errors="replace"))


def _events(data: bytes, _: Path) -> None:
    state.read_warnings(data.decode(errors="replace"))


def _log(data: bytes, _: Path) -> None:
    log = PodLog(Pod("worker/0", "x-worker-0", "1", "node0", "running"))
    for _connection in range(2):
        for line in log.new_lines(iter(data.splitlines(keepends=True))):
            assert isinstance(line, str)


PARSERS = [
    Parser("kubectl-log", lambda: [b"2026-01-31T09:00:00.1Z x\ny\n"], _log),
    Parser(
        "kubectl-poll",
        lambda: [json.dumps({"kind": "List", "items": [_POD, _JOB]}).encode()],
        _poll,
        (UnreadableError,),
        mutate.of_json,
    ),
    Parser(
        "kubectl-events",
        lambda: [json.dumps({"kind": "List", "items": [_WARNING]}).encode()],
        _events,
        (UnreadableError,),
        mutate.of_json,
    ),
]
