"""A Kubeflow TFJob, followed with kubectl."""

from typing import TYPE_CHECKING

from launch.cluster.kind import Kind

if TYPE_CHECKING:
    from launch.backends.base import Backend
    from launch.backends.kubernetes.settings import KubernetesSettings
    from launch.cluster.yaml_section import Section


def _read_settings(section: "Section") -> "KubernetesSettings":
    from launch.backends.kubernetes.settings import read_settings

    return read_settings(section)


KIND = Kind("kubernetes", chooses_hosts=True, host_per_task=True, read_settings=_read_settings)


def load() -> "Backend":
    """The backend itself."""
    from launch.backends.kubernetes.backend import Kubernetes

    return Kubernetes()
