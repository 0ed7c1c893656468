"""What `backend: docker` can be told."""

from dataclasses import dataclass
from typing import Optional


@dataclass(frozen=True)
class DockerSettings:
    """The `docker:` section of a cluster file.

    Attributes:
      image: holds the code at /data, with `python` as its entry point, as the Dockerfile makes it.
        It must be on every host: nothing is pulled.
      engine: `docker`, `podman`, or a path to one of them.
      data: the records' folder on the hosts; None is `data` in the working directory. Relative
        paths start there, too.
      output: the folder for checkpoints and figures; None is `output` in the working directory.
      options: further words for `docker run`, each as `--name` or `--name=value`.
    """

    image: str = "cifar10"
    engine: str = "docker"
    data: Optional[str] = None
    output: Optional[str] = None
    options: tuple[str, ...] = ()
