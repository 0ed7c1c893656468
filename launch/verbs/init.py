"""`init`: writes a commented cluster file: the backend's template, filled in from the flags."""

import argparse
import string
from importlib import resources

import yaml

from cifar10_program import LAUNCH, started_as
from launch.backends.registry import BACKENDS
from launch.cluster.host_list import SETUP_PYTHON
from launch.cluster.model import TASK_TYPES, Host
from launch.errors import LaunchError
from launch.verbs.flags import cluster_of


def init(options: argparse.Namespace) -> int:
    """Writes the file and returns 0.

    Raises:
      LaunchError: a flag is wrong, or the file is there already or cannot be written.
    """
    backend = BACKENDS[options.on or "ssh"]
    if options.workers is None and (backend.chooses_hosts or backend.is_this_machine):
        options.workers = 1
    options.cluster, options.nodes, options.set = None, None, []  # flags of the other verbs
    cluster = cluster_of(options)
    template = resources.files("launch.verbs") / "templates" / f"{backend.name}.yaml"
    text = string.Template(template.read_text("utf-8")).substitute(
        path=options.out,
        hosts="\n".join(map(_host, cluster.hosts)),
        tasks=_mapping({task_type: cluster.count(task_type) for task_type in TASK_TYPES}),
        workdir=_scalar(cluster.hosts[0].workdir),
        python=_scalar(options.python or SETUP_PYTHON),
    )
    try:
        with open(options.out, "x", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise LaunchError(f"{options.out}: {error.strerror}; name another with --out") from None
    print(f"{options.out}: written; next: {started_as(LAUNCH)} plan --cluster {options.out}")
    return 0


def _host(host: Host) -> str:
    user = "" if host.user is None else f"\n    user: {host.user}  # who logs in there"
    return (
        f"  - name: {host.name}  # as ssh knows it{user}\n"
        f"    roles: {_mapping(dict(host.roles))}  # how many tasks of each type it runs"
    )


def _mapping(counts: dict[str, int]) -> str:
    return "{" + ", ".join(f"{key}: {count}" for key, count in counts.items() if count) + "}"


def _scalar(text: str) -> str:
    """Returns a value as YAML, in one line, quoted where that is needed."""
    return yaml.safe_dump(text, width=1_000_000, allow_unicode=True).removesuffix("...\n").strip()
