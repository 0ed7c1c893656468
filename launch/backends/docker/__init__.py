"""Runs tasks in containers, which agents start with `docker run`."""

from launch.backends.docker.settings import DockerSettings
from launch.cluster.kind import Kind


def _load() -> object:
    from launch.backends.docker.backend import Docker

    return Docker()


KIND = Kind("docker", _load, has_image=True, settings=DockerSettings)
