"""Describes a job as Kubernetes objects: a Kubeflow TFJob, or Jobs; a NetworkPolicy and a Secret.

The functions have no side effects. For a TFJob, the training operator creates a pod and a service
for each task, and writes TF_CONFIG. Without an operator, each task is a Job of Kubernetes itself.
"""

import json
import math
from typing import Any

import yaml

from launch.backends.kubernetes.pod_template import Manifest, pod_template, port_of, secret_name
from launch.backends.kubernetes.settings import settings_of
from launch.cluster.tasks import Job, Task
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
# The operator's labels of pods; those of Jobs get the same ones, so that all are read in one way.
JOB_NAME = "training.kubeflow.org/job-name"
TYPE, INDEX = "training.kubeflow.org/replica-type", "training.kubeflow.org/replica-index"
_LATER_SECS = 60  # so that the pod's own deadline, which names itself, comes before its Job's
_LEAST_TTL_SECS = 60  # a poll has to show how a pod has ended


def planned(job: Job) -> list[Manifest]:
    """Returns the manifests that `plan` shows: all but the Secret with the variables' values.

    Raises:
      LaunchError: the description of the cluster names hosts, but Kubernetes chooses the nodes.
    """
    settings = settings_of(job.cluster)
    if settings.operator == "none":
        jobs = task_jobs(job, settings.name).values()
        return [network_policy(job, settings.name), service(job, settings.name), *jobs]
    return [network_policy(job, settings.name), tfjob(job, settings.name)]


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
    _refuse_hosts(job)
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
                        "metadata": {"labels": _pod_labels(name)},
                        "spec": pod_template(job, first[kind], name),
                    },
                }
                for kind in _ROLES
                if kind in first
            },
        },
    }


def service(job: Job, name: str) -> Manifest:
    """Returns the headless Service that gives the pods of Jobs their names, `TYPE-INDEX.NAME`."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": _metadata(job, name),
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,  # so that pods find each other while they start
            "selector": {_INSTANCE: name},
        },
    }


def task_jobs(job: Job, name: str) -> dict[str, Manifest]:
    """Returns a Job for each task, by the task's name. The launcher restarts tasks, no Job does.

    Raises:
      LaunchError: the description of the cluster names hosts, but Kubernetes chooses the nodes.
    """
    _refuse_hosts(job)
    return {task.name: _task_job(job, task, name) for task in job.tasks}


def job_name(name: str, task: str) -> str:
    """Returns the name of the Job of the task `task`; a TFJob's pods are called like this, too."""
    return f"{name}-{task.replace('/', '-')}"


def _task_job(job: Job, task: Task, name: str) -> Manifest:
    settings = settings_of(job.cluster)
    pod = pod_template(job, task, name)
    pod |= {
        "restartPolicy": "Never",
        "hostname": task.name.replace("/", "-"),
        "subdomain": name,
    }
    pod["containers"][0]["env"].append({"name": "TF_CONFIG", "value": _tf_config(job, task, name)})
    labels_of_task = {JOB_NAME: name, TYPE: task.task_type, INDEX: str(task.index)}
    spec: Manifest = {
        "completions": 1,
        "backoffLimit": 0,
        "ttlSecondsAfterFinished": max(settings.ttl_secs, _LEAST_TTL_SECS),
        "template": {"metadata": {"labels": _pod_labels(name) | labels_of_task}, "spec": pod},
    }
    if settings.deadline_secs is not None:
        spec["activeDeadlineSeconds"] = math.ceil(settings.deadline_secs) + _LATER_SECS
    metadata = _metadata(job, job_name(name, task.name)) | {"labels": labels(name)}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec}


def _tf_config(job: Job, task: Task, name: str) -> str:
    cluster: dict[str, list[str]] = {}
    for one in job.tasks:
        if one.task_type != "evaluator":
            address = f"{one.name.replace('/', '-')}.{name}:{port_of(one)}"
            cluster.setdefault(one.task_type, []).append(address)
    place = {"type": task.task_type, "index": task.index}
    return json.dumps({"cluster": cluster, "task": place, "environment": "cloud"})


def _refuse_hosts(job: Job) -> None:
    if any(len(job.on(host)) != 1 for host in job.cluster.hosts):
        raise LaunchError(
            "kubernetes runs each task in its own pod and chooses the nodes; give "
            "--workers and --ps, or `tasks:` instead of `hosts:` in the cluster file"
        )


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


def _pod_labels(name: str) -> dict[str, str]:
    # The proxy of a service mesh would outlive the task, and intercept its traffic.
    return labels(name) | {"sidecar.istio.io/inject": "false"}


def selector(name: str) -> str:
    """Returns kubectl's selector for the objects with a job's labels."""
    return f"{_INSTANCE}={name},{_MANAGED_BY}={_LAUNCHER}"


def pod_selector(name: str) -> str:
    """Returns kubectl's selector for a job's pods, and for the operator's services."""
    return f"{JOB_NAME}={name}"


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
