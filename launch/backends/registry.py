"""The backends by name: a line each for those here, and `register` for others."""

from typing import TYPE_CHECKING, Protocol

from launch.backends import docker, kubernetes, local, slurm, ssh
from launch.cluster.kind import Kind
from launch.errors import LaunchError

if TYPE_CHECKING:
    from launch.backends.base import Backend


class Entry(Protocol):
    """What stands for a backend until it is needed: a folder here, or whatever is like one."""

    KIND: Kind

    def load(self) -> "Backend":
        """The backend itself; imports what it needs only now."""


KINDS: dict[str, Kind] = {}
_ENTRIES: dict[str, Entry] = {}


def register(entry: Entry) -> None:
    """Adds a backend: from now on `--on`, `backend:` and its section of a cluster file know it.

    Raises:
      ValueError: there is one of that name.
    """
    name = entry.KIND.name
    if name in KINDS:
        raise ValueError(f"there is a backend {name} already; choose another name")
    KINDS[name], _ENTRIES[name] = entry.KIND, entry


def unregister(name: str) -> None:
    """Takes a backend away again."""
    del KINDS[name], _ENTRIES[name]


def backend_named(name: str) -> "Backend":
    """The backend of this name; loads it only now.

    Raises:
      LaunchError: there is none.
    """
    if name not in _ENTRIES:
        raise LaunchError(f"a backend must be one of {', '.join(KINDS)}, got {name!r}")
    return _ENTRIES[name].load()


_BACKENDS: tuple[Entry, ...] = (
    local,
    ssh,
    docker,
    slurm,
    kubernetes,
)
for _entry in _BACKENDS:
    register(_entry)
