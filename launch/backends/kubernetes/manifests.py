"""Describes a job as Kubernetes objects: a Kubeflow TFJob, a NetworkPolicy and a Secret.

The functions have no side effects. The training operator creates a pod and a service for each task,
and writes TF_CONFIG.
"""

import math
from collections.abc import Iterable
from importlib.resources import files
from typing import Any, Optional

import yaml

from launch.backends.kubernetes.pod_end import grace_secs, hold_secs
from launch.backends.kubernetes.settings import KubernetesSettings, settings_of
from launch.backends.kubernetes.volumes import CHECK, check_arguments, mounts, volumes
from launch.cluster.model import FIRST_PORT
from launch.cluster.tasks import SCRIPT, Job, Task
from launch.errors import LaunchError

Manifest = dict[str, Any]

CONTAINER = "tensorflow"  # the operator finds the container, and its port, by these names
_PORT_NAME = "tfjob-port"
_ROLES = {
    "master": "Master",
    "chief": "Chief",
    "worker": "Worker",
    "ps": "PS",
    "evaluator": "Evaluator",
}
_INSTANCE = "app.kubernetes.io/instance"
_MANAGED_BY, _LAUNCHER = "app.kubernetes.io/managed-by", "cifar10-launch"
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


def planned(job: Job) -> list[Manifest]:
    """Returns the manifests that `plan` shows: all but the Secret with the variables' values.

    Raises:
      LaunchError: the description of the cluster names hosts, but Kubernetes chooses the nodes.
    """
    name = settings_of(job.cluster).name
    return [network_policy(job, name), tfjob(job, name)]


def network_policy(job: Job, name: str) -> Manifest:
    """Returns a policy that lets only the job's own pods reach its unprotected ports."""
    ports = sorted({_port(task) for task in job.tasks if task.task_type != "evaluator"})
    own = {"matchLabels": {_INSTANCE: name}}
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": _metadata(job, name),
        "spec": {
            "podSelector": own,
            "policyTypes": ["Ingress"],
            "ingress": [
                {
                    "from": [{"podSelector": own}],
                    "ports": [{"protocol": "TCP", "port": port} for port in ports],
                }
            ],
        },
    }


def secret(job: Job, name: str, values: dict[str, str]) -> Manifest:
    """Returns a Secret with the variables that every task gets; no plan contains it."""
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": _metadata(job, secret_name(name)) | {"labels": labels(name)},
        "type": "Opaque",
        "stringData": values,
    }


def tfjob(job: Job, name: str) -> Manifest:
    """Returns the TFJob.

    Raises:
      LaunchError: the description of the cluster names hosts, but Kubernetes chooses the nodes.
    """
    if any(len(job.on(host)) != 1 for host in job.cluster.hosts):
        raise LaunchError(
            "kubernetes runs each task in its own pod and chooses the nodes; give "
            "--workers and --ps, or `tasks:` instead of `hosts:` in the cluster file"
        )
    first = {task.task_type: task for task in reversed(job.tasks)}
    # An evaluator still evaluates after the chief has ended; then it and the ps end by themselves.
    # Without an evaluator, the operator may delete the pods that still run.
    clean = "None" if "evaluator" in first else "Running"
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "TFJob",
        "metadata": _metadata(job, name),
        "spec": {
            "runPolicy": _run_policy(job, clean),
            "tfReplicaSpecs": {
                _ROLES[kind]: {
                    "replicas": job.cluster.count(kind),
                    "restartPolicy": _restart_policy(job),
                    "template": {
                        "metadata": {
                            # The proxy of a service mesh would outlive the task, and intercept its
                            # traffic.
                            "labels": labels(name) | {"sidecar.istio.io/inject": "false"}
                        },
                        "spec": _pod(job, first[kind], name),
                    },
                }
                for kind in _ROLES
                if kind in first
            },
        },
    }


def _restart_policy(job: Job) -> str:
    """Returns whether the operator replaces the pods of failed tasks.

    `ExitCode`: exit codes 1 to 127 fail the job; from 128 (a signal), the pod is made anew, without
    a limit of the operator's own. So without restarts, the first failure has to end the job.
    """
    return "ExitCode" if job.cluster.restarts else "Never"


def _run_policy(job: Job, clean: str) -> Manifest:
    settings, restarts = settings_of(job.cluster), job.cluster.restarts
    found: Manifest = {"cleanPodPolicy": clean, "ttlSecondsAfterFinished": settings.ttl_secs}
    if settings.deadline_secs is not None:
        found["activeDeadlineSeconds"] = math.ceil(settings.deadline_secs)
    if restarts:
        # Training operator 1.8 counts only restarts within a pod, and no pods that it makes anew:
        # the launcher counts those, and the deadline ends what nobody counts. With a limit of 0,
        # it would delete the failed pod with its log.
        found["backoffLimit"] = restarts
    return found


def labels(name: str) -> dict[str, str]:
    """Returns the labels of all objects of a job, by which `clean` finds them."""
    return {"app.kubernetes.io/name": "cifar10", _INSTANCE: name, _MANAGED_BY: _LAUNCHER}


def selector(name: str) -> str:
    """Returns kubectl's selector for the objects with a job's labels."""
    return f"{_INSTANCE}={name},{_MANAGED_BY}={_LAUNCHER}"


def pod_selector(name: str) -> str:
    """Returns kubectl's selector for a job's pods and services, by the operator's own label."""
    return f"training.kubeflow.org/job-name={name}"


def secret_name(name: str) -> str:
    """Returns the name of a job's Secret."""
    return f"{name}-environment"


def as_yaml(manifests: "list[Manifest]") -> str:
    """Returns the manifests as YAML documents for `kubectl apply -f -`."""
    return yaml.dump_all(manifests, Dumper=_Dumper, sort_keys=False, width=100).rstrip("\n")


class _Dumper(yaml.SafeDumper):
    """Writes text of several lines as a block, and equal objects in full instead of as aliases."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _text)


def _metadata(job: Job, name: str) -> Manifest:
    namespace = settings_of(job.cluster).namespace
    found: Manifest = {"name": name, "labels": labels(name)}
    return found if namespace is None else {**found, "namespace": namespace}


def _port(task: Task) -> int:
    """Returns the task's port; tasks of one role share it, since each has a pod of its own."""
    return task.port or FIRST_PORT


def _pod(job: Job, task: Task, name: str) -> Manifest:
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
        pod["volumes"] += volumes(settings)
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
    # not needed: the operator writes correct addresses.
    arguments = [f"/data/{SCRIPT}", "--check-address=false", *job.arguments]
    variables = {"PYTHONUNBUFFERED": "1"}
    if not gpus:
        variables["NVIDIA_VISIBLE_DEVICES"] = "void"  # the image's `all` would show others' GPUs
    container: Manifest = {
        "name": CONTAINER,
        "image": settings.image,
        "imagePullPolicy": settings.image_pull_policy,
        "args": _literal(arguments),
        "env": [{"name": key, "value": value} for key, value in variables.items()],
        "ports": [{"name": _PORT_NAME, "containerPort": _port(task), "protocol": "TCP"}],
        "resources": _resources(settings, gpus, serves),
        "securityContext": dict(_RESTRICTED),
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": [_TMP_MOUNT, *([] if serves else mounts())],
    }
    if cluster.environment or cluster.passed:
        container["envFrom"] = [{"secretRef": {"name": secret_name(name)}}]
    hook = _hook(task, hold_secs(task.task_type, cluster.limits))
    if hook is not None:
        container["lifecycle"] = {"preStop": {"exec": {"command": hook}}}
    return container


def _folder_check(job: Job) -> Manifest:
    """Returns the init container that says which folder the task's user may not use."""
    settings = settings_of(job.cluster)
    return {
        "name": CHECK,
        "image": settings.image,
        "imagePullPolicy": settings.image_pull_policy,
        "args": _literal(check_arguments(job, settings)),
        "env": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"}],
        "resources": _resources(settings, 0, serves=False),  # it ends before the task begins
        "securityContext": dict(_RESTRICTED),
        "terminationMessagePolicy": "FallbackToLogsOnError",  # its last line, for the pod's status
        "volumeMounts": [_TMP_MOUNT, *mounts()],
    }


def _literal(arguments: Iterable[str]) -> list[str]:
    """Returns arguments in which Kubernetes replaces nothing, such as $(X)."""
    return [argument.replace("$", "$$") for argument in arguments]


def _hook(task: Task, secs: int) -> Optional[list[str]]:
    """Returns the command of the preStop hook, which delays SIGTERM; None for no hook."""
    if task.task_type == "worker":
        return ["sleep", str(secs)]
    if task.task_type == "ps":
        source = files("launch.backends.kubernetes").joinpath("hold.py").read_text("utf-8")
        return ["python", "-c", source, str(secs)]
    return None


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
