"""The settings in the `docker:` section of a cluster file.

docker:                           # each key is optional; lines show the default or an example
  image: cifar10                  # on every host: `docker save cifar10 | ssh node1 docker load`
  engine: docker                  # or podman, or a path to one of them
  data: /records                  # on the hosts; default: `data` in workdir
  output: /results                # default: `output` in workdir
  restricted: true                # what a container may do; false: all that the engine lets it
  options: [--shm-size=1g]        # further words for `docker run`
"""

import re
from dataclasses import dataclass
from typing import Optional

from launch.cluster.model import COMMAND_NAME, Cluster
from launch.cluster.yaml_section import matching, setting, yes_or_no
from launch.errors import LaunchError

_IMAGE = matching(r"[A-Za-z0-9][A-Za-z0-9_.:/@-]*", "an image, such as registry/cifar10:3")
_ENGINE = matching(COMMAND_NAME, "docker, podman, or a path of letters, digits, / . _ + -")
# Engines read the value of --mount as one row of a CSV file.
_FOLDER = matching(r'[^\0-\x1f\x7f-\x9f,"]+', 'a folder, without , and "')

# Options that the launcher sets itself, that would let a container outlive it, or that could show
# a secret -> the reason for the error message.
_OURS = {
    "cidfile": "the launcher names containers itself",
    "detach": "the launcher waits for its containers",
    "entrypoint": "the image has the one entry point for all tasks",
    "env": "say `environment:` or `pass_environment:`",
    "env-file": "say `environment:` or `pass_environment:`",
    "label-file": "the launcher finds containers by its own labels",
    "name": "the launcher names containers itself",
    "net": "tasks communicate over the hosts' network",
    "network": "tasks communicate over the hosts' network",
    "pull": "copy the image to the hosts beforehand",
    "restart": "say `restarts:`",
    "rm": "the launcher removes its containers",
    "sig-proxy": "tasks save when they get a signal",
    "user": "output files belong to the user who runs the containers",
}


def _option(text: str) -> str:
    match = re.fullmatch(r"--([a-z][a-z0-9-]*)(=[^\0-\x1f\x7f-\x9f]+)?", text)
    if not match:
        raise LaunchError(f"must be words like --name or --name=value, got {text!r}")
    if match[1] in _OURS:
        raise LaunchError(f"cannot hold --{match[1]}: {_OURS[match[1]]}")
    return text


@dataclass(frozen=True)
class DockerSettings:
    """The `docker:` section of a cluster file.

    Attributes:
      image: the image, with the code at /data and `python` as entry point, as the Dockerfile builds
        it. It must be on every host, because nothing is pulled.
      engine: `docker`, `podman`, or a path to one of them.
      data: the folder with the records on the hosts. None means `data`; relative paths start from
        the working directory.
      output: the folder for checkpoints and figures on the hosts. None means `output`.
      restricted: whether containers run without capabilities, with a read-only root file system,
        and without a way to gain rights.
      options: further words for `docker run`, each as `--name` or `--name=value`.
    """

    image: str = setting("cifar10", _IMAGE)
    engine: str = setting("docker", _ENGINE)
    data: Optional[str] = setting(None, _FOLDER)
    output: Optional[str] = setting(None, _FOLDER)
    restricted: bool = setting(True, yes_or_no)
    options: tuple[str, ...] = setting((), _option)


def settings_of(cluster: Cluster) -> DockerSettings:
    """Returns the settings of the `docker:` section, or the defaults if there is no section."""
    found: DockerSettings = cluster.settings.get("docker", DockerSettings())
    return found
