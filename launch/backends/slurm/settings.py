"""What `backend: slurm` can be told."""

from dataclasses import dataclass
from typing import Optional


@dataclass(frozen=True)
class SlurmSettings:
    """The `slurm:` section of a cluster file; None leaves it to Slurm.

    Attributes:
      partition: as `sinfo` lists them; so are account and qos named as sbatch takes them.
      time: the job's time limit, as sbatch takes it.
      mem: memory of each node, as sbatch takes it.
      cpus_per_task: cores for each task, ps included; a node gets those of all its tasks.
      gpu_type: of the GPUs that `gpus_per_task` or `gpus` ask for.
      exclusive: whole nodes.
      requeue: back to the queue, and on from the last checkpoint, after a preemption, the failure
        of a node or the time limit.
      pending_secs: how long the job may wait for its nodes.
      options: further ones for sbatch, each `--name` or `--name=value`.
    """

    partition: Optional[str] = None
    account: Optional[str] = None
    qos: Optional[str] = None
    time: Optional[str] = None
    mem: Optional[str] = None
    cpus_per_task: int = 1
    gpu_type: Optional[str] = None
    exclusive: bool = False
    requeue: bool = False
    pending_secs: Optional[float] = None
    options: tuple[str, ...] = ()
