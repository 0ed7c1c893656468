"""A Slurm job that is its own launcher."""

from typing import TYPE_CHECKING

from launch.backends.slurm.settings import SlurmSettings
from launch.cluster.kind import Kind
from launch.cluster.model import FREE_PORTS

if TYPE_CHECKING:
    from launch.backends.base import Backend


KIND = Kind("slurm", chooses_hosts=True, default_ports=FREE_PORTS, settings=SlurmSettings)


def load() -> "Backend":
    """The backend itself."""
    from launch.backends.slurm.backend import Slurm

    return Slurm()
