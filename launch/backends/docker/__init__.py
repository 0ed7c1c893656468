"""Tasks in containers, by agents that run `docker`."""

from typing import TYPE_CHECKING

from launch.backends.docker.settings import DockerSettings
from launch.cluster.kind import Kind

if TYPE_CHECKING:
    from launch.backends.base import Backend


KIND = Kind("docker", has_image=True, settings=DockerSettings)


def load() -> "Backend":
    """The backend itself."""
    from launch.backends.docker.backend import Docker

    return Docker()
