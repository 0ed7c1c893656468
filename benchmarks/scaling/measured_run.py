"""What is measured of a job, and its figures."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence

from cifar10.config.train_config import TrainConfig
from launch.backends.local.backend import TRANSPORT
from launch.cluster.model import LEADS, Cluster
from launch.connect.transport import Transport


def _as_it_is(*_: object) -> None:
    """Changes nothing."""


def _at_once() -> bool:
    return True


@dataclasses.dataclass(frozen=True)
class Run:
    """A job to measure.

    Attributes:
      cluster: the tasks and their hosts; a master alone is a single process.
      config: the training settings.
      seconds: least duration of steady training, in seconds, in each condition.
      log_steps: steps of a trainer between two of its progress lines.
      min_lines: least number of progress lines of each trainer in steady training.
      transport: how the launcher reaches the hosts.
      conditions: functions that change the hosts or their network, each called before a measurement
        of its own: the first once all trainers take steps.
      may_begin: is asked, once all trainers take steps, whether the measurement may begin.
      stepping: is called with the name of a host once its task has printed its first progress line.
    """

    cluster: Cluster
    config: TrainConfig
    seconds: float
    log_steps: int = 5
    min_lines: int = 5
    transport: Transport = TRANSPORT
    conditions: Sequence[Callable[[], None]] = (_as_it_is,)
    may_begin: Callable[[], bool] = _at_once
    stepping: Callable[[str], None] = _as_it_is

    @property
    def trainers(self) -> int:
        """The number of processes that train."""
        return self.cluster.count(*LEADS, "worker")


@dataclasses.dataclass(frozen=True)
class Figures:
    """The figures of a measured job.

    Attributes:
      images_per_sec: images/s of the whole job.
      step_secs: median seconds of a trainer's step; mean over the trainers.
      jitter: standard deviation of a step's time divided by its median, estimated from quartiles;
        mean over the trainers.
      staleness: mean number of updates by others between two updates of a trainer; 0 if updates are
        synchronous.
      cpu_cores: task -> number of cores that the task kept busy.
      wire_bytes: bytes per second sent between hosts, summed over the hosts.
      loopback_bytes: bytes per second sent within hosts, summed over the hosts.
    """

    images_per_sec: float
    step_secs: float
    jitter: float
    staleness: float
    cpu_cores: Mapping[str, float]
    wire_bytes: float
    loopback_bytes: float

    @property
    def busy_cores(self) -> float:
        """The number of cores that all tasks together kept busy."""
        return sum(self.cpu_cores.values())

    @property
    def server_cores(self) -> float:
        """The number of cores that the parameter servers together kept busy."""
        return sum(cores for task, cores in self.cpu_cores.items() if task.startswith("ps/"))

    @property
    def sent_bytes(self) -> float:
        """Bytes per second sent between and within hosts."""
        return self.wire_bytes + self.loopback_bytes
