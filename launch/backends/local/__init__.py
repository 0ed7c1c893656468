"""Tasks as processes of this machine, under one agent."""

from typing import TYPE_CHECKING

from launch.cluster.kind import Kind
from launch.cluster.model import FREE_PORTS

if TYPE_CHECKING:
    from launch.backends.base import Backend


KIND = Kind("local", is_this_machine=True, default_ports=FREE_PORTS)


def load() -> "Backend":
    """The backend itself."""
    from launch.backends.local.backend import Local

    return Local()
