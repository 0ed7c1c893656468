"""What a description of a cluster has to know of a backend."""

from dataclasses import dataclass
from typing import Optional

from launch.cluster.model import Ports


@dataclass(frozen=True)
class Kind:
    """A backend, as far as words and files go.

    Attributes:
      name: as `--on` and `backend:` have it, and the backend's own section of a cluster file.
      chooses_hosts: whether it chooses the hosts itself, by the counts of tasks.
      host_per_task: whether each task gets one of its own, as a pod is, where it chooses them.
      is_this_machine: whether it runs all tasks on the launcher's own machine.
      has_image: whether tasks run in an image, which has a Python and the code of its own.
      default_ports: where the description says none.
      settings: what its section can say, as a dataclass whose fields are made with
        `launch.cluster.rules.setting`; None if there is no section of that name.
    """

    name: str
    chooses_hosts: bool = False
    host_per_task: bool = False
    is_this_machine: bool = False
    has_image: bool = False
    default_ports: Ports = Ports()
    settings: Optional[type] = None
