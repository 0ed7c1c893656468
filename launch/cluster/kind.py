"""What a description of a cluster has to know of a backend."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Optional

from launch.cluster.model import Ports

if TYPE_CHECKING:
    from launch.cluster.yaml_section import Section


@dataclass(frozen=True)
class Kind:
    """A backend, as far as words and files go.

    Attributes:
      name: as `--on` and `backend:` have it, and the backend's own section of a cluster file.
      chooses_hosts: whether it chooses the hosts itself, by the counts of tasks.
      host_per_task: whether each task gets one of its own, as a pod is, where it chooses them.
      default_ports: where the description says none.
      read_settings: reads and checks the section; None if there is none of that name.
    """

    name: str
    chooses_hosts: bool = False
    host_per_task: bool = False
    default_ports: Ports = Ports()
    read_settings: "Optional[Callable[[Section], Any]]" = None
