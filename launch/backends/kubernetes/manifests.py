"""Describes a job as Kubernetes objects: a Kubeflow TFJob, a NetworkPolicy and a Secret.

The functions have no side effects. The training operator creates a pod and a service for each task,
and writes TF_CONFIG.
"""

import math
from typing import Any

import yaml

from launch.backends.kubernetes.pod_template import Manifest, pod_template, port_of, secret_name
from launch.backends.kubernetes.settings import settings_of
from launch.cluster.tasks import Job
from launch.errors import LaunchError

_ROLES = {
    "master": "Master",
    "chief": "Chief",
    "worker": "Worker",
    "ps": "PS",
    "evaluator": "Evaluator",
}
_INSTANCE = "app.kubernetes.io/instance"
_MANAGED_BY, _LAUNCHER = "app.kubernetes.io/managed-by", "cifar10-launch"


def planned(job: Job) -> list[Manifest]:
    """Returns the manifests that `plan` shows: all but the Secret with the variables' values.

    Raises:
      LaunchError: the description of the cluster names hosts, but Kubernetes chooses the nodes.
    """
    name = settings_of(job.cluster).name
    return [network_policy(job, name), tfjob(job, name)]


def network_policy(job: Job, name: str) -> Manifest:
    """Returns a policy that lets only the job's own pods reach its unprotected ports."""
    ports = sorted({port_of(task) for task in job.tasks if task.task_type != "evaluator"})
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
                        "spec": pod_template(job, first[kind], name),
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
