"""A small cluster of Slurm, one of Kubernetes, and what Kubernetes says of a pod of it."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from launch.backends.kubernetes.settings import KubernetesSettings
from launch.backends.registry import BACKENDS
from launch.cluster.cluster_file import read_cluster
from launch.cluster.host_list import on_chosen_hosts
from launch.cluster.model import Cluster


def read(folder: Path, text: str) -> Cluster:
    """Returns the cluster of a file lab.yaml with this text."""
    path = folder / "lab.yaml"
    path.write_text(text, errors="surrogateescape")
    return read_cluster(str(path), BACKENDS)


def slurm_cluster(**changes: object) -> Cluster:
    """A master, a worker and two ps on two nodes."""
    counts = {"master": 1, "worker": 1, "ps": 2}
    cluster = on_chosen_hosts(BACKENDS["slurm"], counts, python=".venv/bin/python", workdir="/data")
    return replace(cluster, **changes)  # type: ignore[arg-type]


def kubernetes_cluster(**tasks: int) -> Cluster:
    """A master, a worker and a ps."""
    hosts = on_chosen_hosts(
        BACKENDS["kubernetes"], tasks or {"master": 1, "worker": 1, "ps": 1}
    ).hosts
    return Cluster(hosts, backend="kubernetes", settings={"kubernetes": KubernetesSettings()})


def pod_status(
    status: dict[str, Any], task: tuple[str, int] = ("worker", 0), uid: str = "1"
) -> dict[str, Any]:
    labels = {
        "training.kubeflow.org/replica-type": task[0],
        "training.kubeflow.org/replica-index": str(task[1]),
    }
    metadata = {"name": f"job-{task[0]}-{task[1]}", "uid": uid, "labels": labels}
    return {"metadata": metadata, "spec": {"nodeName": "n1"}, "status": status}


def job_status(task: str) -> dict[str, Any]:
    """Returns a task's Job."""
    kind, _, index = task.partition("/")
    labels = pod_status({}, (kind, int(index)))["metadata"]["labels"]
    return {"kind": "Job", "metadata": {"labels": labels}, "status": {"conditions": []}}


def container_state(**state: Any) -> dict[str, Any]:
    status = {"name": "tensorflow", "image": "lab/x:1", "state": state}
    return {"phase": "Running", "containerStatuses": [status]}


RUNNING = container_state(running={})


def terminated(code: int, reason: str = "Error") -> dict[str, Any]:
    return container_state(terminated={"exitCode": code, "reason": reason})
