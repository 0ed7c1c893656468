"""The table of backends by name. A package outside this tree adds its line to `BACKENDS`."""

from collections.abc import Iterator, Mapping
from pkgutil import resolve_name
from typing import TYPE_CHECKING

from launch.errors import LaunchError

if TYPE_CHECKING:
    from launch.backends.base import Backend

# The name in `--on`, in `backend:` and of a cluster file's section -> module:class.
BACKENDS = {
    "local": "launch.backends.local:Local",
    "ssh": "launch.backends.ssh:Ssh",
    "docker": "launch.backends.docker:Docker",
    "slurm": "launch.backends.slurm.backend:Slurm",
    "kubernetes": "launch.backends.kubernetes.backend:Kubernetes",
}


class _Loaded(Mapping[str, "Backend"]):
    """Imports a backend when it is asked for: most commands need one of them."""

    def __getitem__(self, name: str) -> "Backend":
        found: Backend = resolve_name(BACKENDS[name])()
        return found

    def __iter__(self) -> Iterator[str]:
        return iter(BACKENDS)

    def __len__(self) -> int:
        return len(BACKENDS)


KINDS = _Loaded()


def backend_named(name: str) -> "Backend":
    """Returns the backend of this name.

    Raises:
      LaunchError: no backend has this name.
    """
    if name not in BACKENDS:
        raise LaunchError(f"a backend must be one of {', '.join(BACKENDS)}, got {name!r}")
    return KINDS[name]
