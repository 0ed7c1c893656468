"""The table of backends by name. A package outside this tree adds its line to `BACKENDS`."""

from collections import UserDict
from pkgutil import resolve_name
from typing import TYPE_CHECKING

from launch.errors import LaunchError

if TYPE_CHECKING:
    from launch.backends.base import Backend


class _Backends(UserDict):  # type: ignore[type-arg]
    """Imports a backend when it is asked for: most commands need one of them.

    Raises:
      LaunchError: no backend has this name.
    """

    def __getitem__(self, name: str) -> "Backend":
        if name not in self.data:
            raise LaunchError(f"a backend must be one of {', '.join(self.data)}, got {name!r}")
        found: Backend = resolve_name(self.data[name])()
        return found


# The name in `--on`, in `backend:` and of a cluster file's section -> module:class.
BACKENDS = _Backends(
    local="launch.backends.local:Local",
    ssh="launch.backends.ssh:Ssh",
    docker="launch.backends.docker:Docker",
    slurm="launch.backends.slurm.backend:Slurm",
    kubernetes="launch.backends.kubernetes.backend:Kubernetes",
)
