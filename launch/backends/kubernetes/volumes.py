"""Describes the volumes of a trainer, and the init container that checks them."""

import posixpath
from importlib.resources import files
from typing import Any

from launch.backends.kubernetes.settings import KubernetesSettings
from launch.cluster.tasks import Job

CHECK = "check-folders"  # the name of the init container
_WORKDIR = "/data"  # of the image
_MODES = {"data": "read", "output": "write"}


def volumes(settings: KubernetesSettings) -> list[dict[str, Any]]:
    """Returns the volumes with the records and with the output."""
    return [_volume("data", settings.data), _volume("output", settings.output)]


def mounts() -> list[dict[str, Any]]:
    """Returns where a container finds these volumes."""
    return [
        {"name": "data", "mountPath": f"{_WORKDIR}/data", "readOnly": True},
        {"name": "output", "mountPath": f"{_WORKDIR}/output"},
    ]


def check_arguments(job: Job, settings: KubernetesSettings) -> list[str]:
    """Returns the arguments of the image's Python that check the folders of the volumes.

    kubelets change the owner of neither NFS nor hostPath volumes for `fsGroup`, so the folders may
    belong to anybody. Only the folders that the training uses are checked.
    """
    source = files("launch.backends.kubernetes").joinpath("folders.py").read_text("utf-8")
    found = ["-c", source]
    for name, mode in _MODES.items():
        mount = f"{_WORKDIR}/{name}"
        folder = posixpath.normpath(posixpath.join(_WORKDIR, job.folder(name)))
        if posixpath.commonpath([mount, folder]) == mount:
            found += [mode, getattr(settings, name), mount, folder]
    return found


def _volume(name: str, place: str) -> dict[str, Any]:
    server, colon, path = place.partition(":")
    if colon:
        found = {"nfs": {"server": server, "path": path, "readOnly": name == "data"}}
    elif place.startswith("/"):
        found = {"hostPath": {"path": place, "type": "Directory"}}
    else:
        found = {"persistentVolumeClaim": {"claimName": place}}
        if name == "data":
            found["persistentVolumeClaim"]["readOnly"] = True
    return {"name": name, **found}
