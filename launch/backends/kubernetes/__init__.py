"""Runs tasks as a Kubeflow TFJob, which kubectl creates and follows."""

from launch.backends.kubernetes.settings import KubernetesSettings
from launch.cluster.kind import Kind


def _load() -> object:
    from launch.backends.kubernetes.backend import Kubernetes

    return Kubernetes()


KIND = Kind(
    "kubernetes",
    _load,
    chooses_hosts=True,
    host_per_task=True,
    has_image=True,
    settings=KubernetesSettings,
)
