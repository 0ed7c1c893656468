"""Runs tasks in a Slurm batch job, which starts and supervises them itself."""

from launch.backends.slurm.settings import SlurmSettings
from launch.cluster.kind import Kind
from launch.cluster.model import FREE_PORTS


def _load() -> object:
    from launch.backends.slurm.backend import Slurm

    return Slurm()


KIND = Kind(
    "slurm",
    _load,
    chooses_hosts=True,
    default_ports=FREE_PORTS,
    settings=SlurmSettings,
)
