"""A Slurm job that is its own launcher."""

from typing import TYPE_CHECKING

from launch.cluster.kind import Kind
from launch.cluster.model import FREE_PORTS

if TYPE_CHECKING:
    from launch.backends.base import Backend
    from launch.backends.slurm.settings import SlurmSettings
    from launch.cluster.yaml_section import Section


def _read_settings(section: "Section") -> "SlurmSettings":
    from launch.backends.slurm.settings import read_settings

    return read_settings(section)


KIND = Kind("slurm", chooses_hosts=True, default_ports=FREE_PORTS, read_settings=_read_settings)


def load() -> "Backend":
    """The backend itself."""
    from launch.backends.slurm.backend import Slurm

    return Slurm()
