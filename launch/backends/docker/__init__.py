"""Tasks in containers, by agents that run `docker`."""

from typing import TYPE_CHECKING

from launch.cluster.kind import Kind

if TYPE_CHECKING:
    from launch.backends.base import Backend
    from launch.backends.docker.settings import DockerSettings
    from launch.cluster.yaml_section import Section


def _read_settings(section: "Section") -> "DockerSettings":
    from launch.backends.docker.settings import read_settings

    return read_settings(section)


KIND = Kind("docker", read_settings=_read_settings)


def load() -> "Backend":
    """The backend itself."""
    from launch.backends.docker.backend import Docker

    return Docker()
