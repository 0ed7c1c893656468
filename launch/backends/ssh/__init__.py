"""Tasks as processes of other machines, under agents that OpenSSH starts."""

from typing import TYPE_CHECKING

from launch.cluster.kind import Kind

if TYPE_CHECKING:
    from launch.backends.base import Backend


KIND = Kind("ssh")


def load() -> "Backend":
    """The backend itself."""
    from launch.backends.ssh.backend import Ssh

    return Ssh()
