"""A Kubeflow TFJob, followed with kubectl."""

from typing import TYPE_CHECKING

from launch.backends.kubernetes.settings import KubernetesSettings
from launch.cluster.kind import Kind

if TYPE_CHECKING:
    from launch.backends.base import Backend


KIND = Kind(
    "kubernetes",
    chooses_hosts=True,
    host_per_task=True,
    has_image=True,
    settings=KubernetesSettings,
)


def load() -> "Backend":
    """The backend itself."""
    from launch.backends.kubernetes.backend import Kubernetes

    return Kubernetes()
