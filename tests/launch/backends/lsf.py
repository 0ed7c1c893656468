"""A backend from outside the tree: hosts of an LSF job, on which `blaunch` starts the agents.

`python -m tests.launch.backends.lsf VERB` is the launcher with this backend.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass

from launch.backends.base import Backend
from launch.backends.registry import BACKENDS
from launch.cluster.model import Host
from launch.cluster.yaml_section import matching, setting
from launch.connect.link import Transport
from launch.verbs.cli import main


@dataclass(frozen=True)
class LsfSettings:
    """The `lsf:` section of a cluster file."""

    queue: str = setting("normal", matching("[a-z]+", "a queue of small letters"))


def _command(host: Host, command: Sequence[str], line: str, lease_secs: float) -> list[str]:
    return ["blaunch", host.name, *command]


def _explain(host: Host, code: int, errors: str) -> str:
    return f"blaunch ended with exit code {code}: {errors}"


class Lsf(Backend):
    """Runs tasks on the hosts of the LSF job in which the launcher runs."""

    name = "lsf"
    settings = LsfSettings
    transport = Transport(_command, _explain)


BACKENDS["lsf"] = "tests.launch.backends.lsf:Lsf"

if __name__ == "__main__":
    sys.exit(main())
