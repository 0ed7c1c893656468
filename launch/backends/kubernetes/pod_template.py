"""Describes the pod of a task: its containers, volumes, limits and the time that it has to end.

When a job ends, Kubernetes deletes all of its pods at once. In each pod it runs the preStop hook,
sends SIGTERM, and sends SIGKILL at the end of the grace period, which begins with the hook:

  pod           delay of SIGTERM by the hook   time to save   grace period
  master/chief  0                              stop_secs      stop_secs
  evaluator     0                              stop_secs      stop_secs
  worker        5 s                            stop_secs      stop_secs + 5 s
  ps            at most stop_secs + 5 s        stop_secs      2 * stop_secs + 5 s

Fractions of a second are rounded up. The functions have no side effects.
"""

import math
import posixpath
from collections.abc import Iterable
from importlib.resources import files
from typing import Any, Optional

from launch.backends.kubernetes.settings import KubernetesSettings, settings_of
from launch.cluster.model import FIRST_PORT, Limits
from launch.cluster.tasks import SCRIPT, Job, Task

Manifest = dict[str, Any]

CONTAINER = "tensorflow"  # the operator finds the container, and its port, by these names
_PORT_NAME = "tfjob-port"
CHECK = "check-folders"  # the name of the init container
_WORKDIR = "/data"  # of the image
_MODES = {"data": "read", "output": "write"}
_USER = 1000  # the user of the image
_TMP_SIZE = "1Gi"  # HOME is there; a pod that writes more is evicted
_TMP_MOUNT = {"name": "tmp", "mountPath": "/tmp"}
_RESTRICTED = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "privileged": False,
    "readOnlyRootFilesystem": True,
}
# Requests and limits where the settings name none. The fast recipe has reached 5.1 GiB on 2 cores.
_CPU, _MEMORY = "2", "8Gi"
_PS_CPU, _PS_MEMORY = "1", "2Gi"
_WORKER_HOLD_SECS = 5  # in synchronous training the master's last step needs the workers
_NODE_SECS = 15  # for nodes to end a pod after its grace period, and to report its end


def port_of(task: Task) -> int:
    """Returns the task's port; tasks of one role share it, since each has a pod of its own."""
    return task.port or FIRST_PORT


def secret_name(name: str) -> str:
    """Returns the name of a job's Secret."""
    return f"{name}-environment"


def hold_secs(task_type: str, limits: Limits) -> int:
    """Returns the maximum delay of SIGTERM by the preStop hook, in seconds."""
    if task_type == "worker":
        return _WORKER_HOLD_SECS
    # A ps serves until the last of the others has ended: see `launch.backends.kubernetes.hold`.
    return grace_secs("worker", limits) if task_type == "ps" else 0


def grace_secs(task_type: str, limits: Limits) -> int:
    """Returns the pod's `terminationGracePeriodSeconds`, a whole number."""
    return hold_secs(task_type, limits) + math.ceil(limits.stop_secs)


def overdue_secs(limits: Limits) -> int:
    """Returns the seconds after the deletion within which every pod should have ended."""
    return grace_secs("ps", limits) + _NODE_SECS


def pod_template(job: Job, task: Task, name: str) -> Manifest:
    """Returns the `spec` of a task's pod.

    Args:
      job: the job.
      task: the task, or the first one of a role: their pods differ in nothing.
      name: the name of the job's objects.
    """
    settings, limits = settings_of(job.cluster), job.cluster.limits
    serves = task.task_type == "ps"
    pod: Manifest = {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": _USER,
            "runAsGroup": _USER,
            "fsGroup": _USER,  # makes new volumes writable for this user
            "fsGroupChangePolicy": "OnRootMismatch",
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "terminationGracePeriodSeconds": grace_secs(task.task_type, limits),
        "containers": [_container(job, task, name)],
        "volumes": [{"name": "tmp", "emptyDir": {"sizeLimit": _TMP_SIZE}}],
    }
    if not serves:
        pod["volumes"] += [_volume("data", settings.data), _volume("output", settings.output)]
        pod["initContainers"] = [_folder_check(job)]
    if settings.deadline_secs is not None:
        # The operator looks at its own deadline only when a pod changes; the node looks by itself.
        pod["activeDeadlineSeconds"] = math.ceil(settings.deadline_secs)
    if settings.image_pull_secrets:
        pod["imagePullSecrets"] = [{"name": one} for one in settings.image_pull_secrets]
    if settings.node_selector:
        pod["nodeSelector"] = dict(settings.node_selector)
    if settings.tolerations:
        pod["tolerations"] = [_toleration(taint) for taint in settings.tolerations]
    return pod


def _container(job: Job, task: Task, name: str) -> Manifest:
    settings, cluster = settings_of(job.cluster), job.cluster
    serves = task.task_type == "ps"
    gpus = 0 if serves else cluster.gpus_per_task or 0
    # The cluster's DNS may learn a pod's own name late, and it caches failed lookups. The check is
    # not needed: the addresses are made from the names of the pods.
    arguments = [f"{_WORKDIR}/{SCRIPT}", "--check-address=false", *job.arguments]
    variables = {"PYTHONUNBUFFERED": "1"}
    if not gpus:
        variables["NVIDIA_VISIBLE_DEVICES"] = "void"  # the image's `all` would show others' GPUs
    container: Manifest = {
        "name": CONTAINER,
        "image": settings.image,
        "imagePullPolicy": settings.image_pull_policy,
        "args": _literal(arguments),
        "env": [{"name": key, "value": value} for key, value in variables.items()],
        "ports": [{"name": _PORT_NAME, "containerPort": port_of(task), "protocol": "TCP"}],
        "resources": _resources(settings, gpus, serves),
        "securityContext": dict(_RESTRICTED),
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": [_TMP_MOUNT, *([] if serves else _mounts())],
    }
    if cluster.environment or cluster.passed:
        container["envFrom"] = [{"secretRef": {"name": secret_name(name)}}]
    hook = _hook(task, hold_secs(task.task_type, cluster.limits))
    if hook is not None:
        container["lifecycle"] = {"preStop": {"exec": {"command": hook}}}
    return container


def _folder_check(job: Job) -> Manifest:
    """Returns the init container that says which folder the task's user may not use.

    kubelets change the owner of neither NFS nor hostPath volumes for `fsGroup`, so the folders may
    belong to anybody. Only the folders that the training uses are checked.
    """
    settings = settings_of(job.cluster)
    arguments = ["-c", _source("folders.py")]
    for name, mode in _MODES.items():
        mount = f"{_WORKDIR}/{name}"
        folder = posixpath.normpath(posixpath.join(_WORKDIR, job.folder(name)))
        if posixpath.commonpath([mount, folder]) == mount:
            arguments += [mode, getattr(settings, name), mount, folder]
    return {
        "name": CHECK,
        "image": settings.image,
        "imagePullPolicy": settings.image_pull_policy,
        "args": _literal(arguments),
        "env": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"}],
        "resources": _resources(settings, 0, serves=False),  # it ends before the task begins
        "securityContext": dict(_RESTRICTED),
        "terminationMessagePolicy": "FallbackToLogsOnError",  # its last line, for the pod's status
        "volumeMounts": [_TMP_MOUNT, *_mounts()],
    }


def _source(script: str) -> str:
    return files("launch.backends.kubernetes").joinpath(script).read_text("utf-8")


def _literal(arguments: Iterable[str]) -> list[str]:
    """Returns arguments in which Kubernetes replaces nothing, such as $(X)."""
    return [argument.replace("$", "$$") for argument in arguments]


def _hook(task: Task, secs: int) -> Optional[list[str]]:
    """Returns the command of the preStop hook, which delays SIGTERM; None for no hook."""
    if task.task_type == "worker":
        return ["sleep", str(secs)]
    return ["python", "-c", _source("hold.py"), str(secs)] if task.task_type == "ps" else None


def _resources(settings: KubernetesSettings, gpus: int, serves: bool) -> Manifest:
    """Returns limits and equal requests, so that a pod gets exactly what it asks for."""
    if serves:
        limits = {
            "cpu": settings.ps_cpu or _PS_CPU,
            "memory": settings.ps_memory or _PS_MEMORY,
        }
    else:
        limits = {"cpu": settings.cpu or _CPU, "memory": settings.memory or _MEMORY}
    if gpus:
        limits[settings.gpu] = str(gpus)
    return {"requests": limits, "limits": limits}


def _toleration(taint: str) -> Manifest:
    taint, _, effect = taint.rpartition(":")
    key, equals, value = taint.partition("=")
    toleration = {"key": key, "effect": effect, "operator": "Equal" if equals else "Exists"}
    return {**toleration, "value": value} if equals else toleration


def _mounts() -> list[Manifest]:
    return [
        {"name": "data", "mountPath": f"{_WORKDIR}/data", "readOnly": True},
        {"name": "output", "mountPath": f"{_WORKDIR}/output"},
    ]


def _volume(name: str, place: str) -> Manifest:
    server, colon, path = place.partition(":")
    if colon:
        found: Manifest = {"nfs": {"server": server, "path": path, "readOnly": name == "data"}}
    elif place.startswith("/"):
        found = {"hostPath": {"path": place, "type": "Directory"}}
    else:
        found = {"persistentVolumeClaim": {"claimName": place}}
        if name == "data":
            found["persistentVolumeClaim"]["readOnly"] = True
    return {"name": name, **found}
