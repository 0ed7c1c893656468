"""The facts about a backend that are needed to read the description of a cluster."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Optional

from launch.cluster.model import Ports

# Why a backend that runs all tasks on this machine takes no `--hosts`, and what to do instead.
ALL_TASKS_HERE = "all tasks run on this machine; give --workers and --ps, or --on ssh"


@dataclass(frozen=True)
class Kind:
    """Facts about a backend, known before its implementation is imported.

    Attributes:
      name: the backend's name in `--on` and `backend:`, and the key of its section in a cluster
        file.
      load: imports the implementation and returns the `launch.backends.base.Backend`.
      chooses_hosts: whether the backend chooses the hosts; users then give only the number of
        tasks of each type.
      host_per_task: whether a backend that chooses the hosts gives each task its own host.
      is_this_machine: whether the backend runs all tasks on the launcher's machine.
      has_image: whether tasks run in an image, which has its own Python and code.
      default_ports: the ports of a cluster whose description gives none.
      settings: the dataclass of the backend's section in a cluster file, with fields made by
        `launch.cluster.yaml_section.setting`; None if there is no such section.
    """

    name: str
    load: Callable[[], Any]
    chooses_hosts: bool = False
    host_per_task: bool = False
    is_this_machine: bool = False
    has_image: bool = False
    default_ports: Ports = Ports()
    settings: Optional[type] = None
