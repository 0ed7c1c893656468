"""The table of backends by name. A package outside this tree adds its own to it."""

from launch.backends.base import Backend
from launch.backends.docker import Docker
from launch.backends.kubernetes.backend import Kubernetes
from launch.backends.local import Local
from launch.backends.slurm.backend import Slurm
from launch.backends.ssh import Ssh
from launch.errors import LaunchError

_ALL = (Local(), Ssh(), Docker(), Slurm(), Kubernetes())
# The name in `--on`, in `backend:` and of a cluster file's section -> the backend.
KINDS: dict[str, Backend] = {one.name: one for one in _ALL}


def backend_named(name: str) -> Backend:
    """Returns the backend of this name.

    Raises:
      LaunchError: no backend has this name.
    """
    if name not in KINDS:
        raise LaunchError(f"a backend must be one of {', '.join(KINDS)}, got {name!r}")
    return KINDS[name]
