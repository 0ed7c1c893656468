"""What the description of a cluster must know of a backend."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Optional

from launch.cluster.model import Ports

# Why a backend whose kind `is_this_machine` takes no other hosts, and what to do instead.
ALL_TASKS_HERE = "all tasks run on this machine; give --workers and --ps, or --on ssh"


@dataclass(frozen=True)
class Kind:
    """What stands for a backend until it is needed.

    Attributes:
      name: as `--on` and `backend:` have it, and the backend's own section of a cluster file.
      load: imports what the backend needs, and returns it: a `launch.backends.base.Backend`.
      chooses_hosts: whether it chooses the hosts itself, by the counts of tasks.
      host_per_task: whether it gives each task a host of its own, where it chooses them.
      is_this_machine: whether it runs all tasks on the launcher's own machine.
      has_image: whether tasks run in an image, which has its own Python and code.
      default_ports: used where the description names none.
      settings: what its section of a cluster file can say: a dataclass whose fields are made with
        `launch.cluster.rules.setting`; None if it has no section.
    """

    name: str
    load: Callable[[], Any]
    chooses_hosts: bool = False
    host_per_task: bool = False
    is_this_machine: bool = False
    has_image: bool = False
    default_ports: Ports = Ports()
    settings: Optional[type] = None
