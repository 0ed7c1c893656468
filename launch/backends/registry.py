"""The table of backends by name; `register` adds backends from outside this tree."""

from typing import TYPE_CHECKING

from launch.backends import docker, kubernetes, local, slurm, ssh
from launch.cluster.kind import Kind
from launch.errors import LaunchError

if TYPE_CHECKING:
    from launch.backends.base import Backend

KINDS: dict[str, Kind] = {}


def register(kind: Kind) -> None:
    """Adds a backend, so that `--on`, `backend:` and a cluster file's section can name it.

    Raises:
      ValueError: there is already a backend of that name.
    """
    if kind.name in KINDS:
        raise ValueError(f"there is a backend {kind.name} already; choose another name")
    KINDS[kind.name] = kind


def unregister(name: str) -> None:
    """Removes a backend."""
    del KINDS[name]


def backend_named(name: str) -> "Backend":
    """Imports and returns the backend of this name.

    Raises:
      LaunchError: no backend has this name.
    """
    if name not in KINDS:
        raise LaunchError(f"a backend must be one of {', '.join(KINDS)}, got {name!r}")
    backend: Backend = KINDS[name].load()
    return backend


for _kind in (
    local.KIND,
    ssh.KIND,
    docker.KIND,
    slurm.KIND,
    kubernetes.KIND,
):
    register(_kind)
