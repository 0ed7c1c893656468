"""Describes a job as Kubernetes objects: a Job for each task, a Service, a NetworkPolicy, a Secret.

`plan` describes it as a Kubeflow TFJob, too: the training operator would create a pod and a service
for each task, and write TF_CONFIG.

When a job ends, Kubernetes deletes all of its pods at once. In each pod it runs the preStop hook,
sends SIGTERM, and sends SIGKILL at the end of the grace period, which begins with the hook:

  pod           delay of SIGTERM by the hook   time to save   grace period
  ps            at most stop_secs              stop_secs      2 * stop_secs
  the others    0                              stop_secs      stop_secs

Fractions of a second are rounded up. A worker stays for some seconds by itself, since the master
needs it to end its step. The functions have no side effects.
"""

import json
import math
import posixpath
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from importlib import resources
from typing import Any, Optional

import yaml

from launch.agent.containers import CODE, DATA, OUTPUT, needs
from launch.backends.kubernetes.settings import KubernetesSettings
from launch.cluster.model import FIRST_PORT, Limits
from launch.cluster.tasks import SCRIPT, Job, Task, with_tf_config

Manifest = dict[str, Any]

NAME = "cifar10"  # of a job without a name of its own; a run's id follows
RESTARTS = "cifar10-launch/restarts"  # annotation of a Job: how often its task was restarted
CONTAINER = "tensorflow"
_ROLES = {role.lower(): role for role in ("Master", "Chief", "Worker", "PS", "Evaluator")}
SHARED = ("NetworkPolicy", "Service")  # objects of a job that hold no values of variables
_EMPTY: tuple[object, ...] = (None, [], {})
_INSTANCE = "app.kubernetes.io/instance"
_MANAGED_BY, _LAUNCHER = "app.kubernetes.io/managed-by", "cifar10-launch"
OURS = f"--selector={_MANAGED_BY}={_LAUNCHER}"  # kubectl's option for the objects of all jobs
# The operator's labels of pods; those of Jobs get the same ones, so that all are read in one way.
JOB_NAME = "training.kubeflow.org/job-name"
TYPE, INDEX = "training.kubeflow.org/replica-type", "training.kubeflow.org/replica-index"
_NODE_SECS = 15  # for nodes to end a pod after its grace period, and to report its end
# The preStop hook of a ps waits while a trainer is connected to its port: at most for some seconds,
# and at least for one, since a trainer may be between two connections. It looks at the kernel's
# table (01 is an established connection), because the cluster's DNS drops the names of pods that
# are ending.
_TABLES = "/proc/net/tcp /proc/net/tcp6"
_HOLD = "while sleep 1; grep -Eqs ':{:04X} [0-9A-F]+:[0-9A-F]+ 01 ' {}; do :; done"


@lru_cache(maxsize=1)
def _templates() -> dict[str, Manifest]:
    path = resources.files("launch.backends.kubernetes") / "templates" / "objects.yaml"
    return dict(yaml.safe_load(path.read_text("utf-8")))


def _filled(template: Any, values: Mapping[str, Any]) -> Any:
    """Returns a template with values in the place of its `$names`, without what is empty then."""
    if isinstance(template, str) and template.startswith("$"):
        return values[template[1:]]
    if isinstance(template, list):
        return [part for each in template if (part := _filled(each, values)) not in _EMPTY]
    if isinstance(template, dict):
        fields = {key: _filled(field, values) for key, field in template.items()}
        return {key: field for key, field in fields.items() if field not in _EMPTY}
    return template


def made(
    kind: str, job: Job, name: str, labels: Optional[Manifest] = None, **values: Any
) -> Manifest:
    """Returns an object as `templates/objects.yaml` has it, filled in from the job's settings.

    Args:
      kind: the name of the template, such as Service.
      job: the job.
      name: the name of the job in the cluster.
      labels: labels besides those that all objects have.
      **values: what only this kind of object needs.
    """
    settings = job.cluster.section(KubernetesSettings)
    own = {"app.kubernetes.io/name": NAME, _INSTANCE: name, _MANAGED_BY: _LAUNCHER}
    shared = {
        **vars(settings),
        "name": name,
        "labels": {**dict(settings.labels), **own, **(labels or {})},
        "annotations": dict(settings.annotations),
        "deadline_secs": settings.deadline_secs and math.ceil(settings.deadline_secs),
    }
    return dict(_filled(_templates()[kind], {**shared, **values}))


def planned(job: Job) -> list[Manifest]:
    """Returns the manifests that `plan` shows: all but the Secret with the variables' values."""
    name = name_of(job)
    return [made(kind, job, name) for kind in SHARED] + [*task_jobs(job, name).values()]


def secret(job: Job, name: str, allowed: Mapping[str, str]) -> Manifest:
    """Returns a Secret with the variables that every task gets; no plan contains it.

    Args:
      job: the job.
      name: the name of the job in the cluster.
      allowed: the values of the variables in `pass_environment`.
    """
    values = {**dict(job.cluster.environment), **allowed}
    return made("Secret", job, name, secret=secret_name(name), variables=values)


def tfjob(job: Job, name: str) -> Manifest:
    """Returns the TFJob."""
    restarts = job.cluster.restarts
    first = {task.task_type: task for task in reversed(job.tasks)}
    replicas = {
        role: {
            "replicas": job.cluster.count(kind),
            # `ExitCode`: exit codes 1 to 127 fail the job; from 128 (a signal), the pod is made
            # anew, without a limit. So without restarts, the first failure has to end the job.
            "restartPolicy": "ExitCode" if restarts else "Never",
            "template": _pod_template(job, first[kind], name),
        }
        for kind, role in _ROLES.items()
        if kind in first
    }
    # An evaluator still evaluates after the chief has ended; then it and the ps end by themselves.
    # Without an evaluator, the operator may delete the pods that still run.
    policy = "None" if "evaluator" in first else "Running"
    return made("TFJob", job, name, clean_pods=policy, restarts=restarts or None, replicas=replicas)


def task_jobs(job: Job, name: str) -> dict[str, Manifest]:
    """Returns a Job for each task, by the task's name."""
    return {task.name: _task_job(job, task, name) for task in addressed(job, name).tasks}


def _task_job(job: Job, task: Task, name: str) -> Manifest:
    own = {JOB_NAME: name, TYPE: task.task_type, INDEX: str(task.index)}
    template = _pod_template(job, task, name, own)
    pod = template["spec"]
    pod |= {"restartPolicy": "Never", "hostname": _host_name(task.name), "subdomain": name}
    pod["containers"][0]["env"].append({"name": "TF_CONFIG", "value": task.tf_config})
    return made("Job", job, name, own, task_job=job_name(name, task.name), template=template)


def addressed(job: Job, name: str) -> Job:
    """Returns the job with the names that the Service gives to pods in TF_CONFIG."""

    def address(task: Task) -> str:
        return f"{_host_name(task.name)}.{name}:{_port(task)}"

    return replace(job, tasks=with_tf_config(job.tasks, address))


def _pod_template(job: Job, task: Task, name: str, labels: Optional[Manifest] = None) -> Manifest:
    """Returns the metadata and spec of a task's pod; the pods of a role differ in nothing."""
    settings, cluster = job.cluster.section(KubernetesSettings), job.cluster
    is_ps = task.task_type == "ps"
    gpus = 0 if is_ps else cluster.gpus_per_task or 0
    of_ps, of_others = (settings.ps_cpu, settings.ps_memory), (settings.cpu, settings.memory)
    resources = dict(zip(("cpu", "memory"), of_ps if is_ps else of_others))
    if gpus:
        resources[settings.gpu] = str(gpus)
    arguments = [posixpath.join(CODE, cluster.program or SCRIPT), *job.arguments]
    secs = str(grace_secs("worker", cluster.limits))
    hold = ["timeout", secs, "sh", "-c", _HOLD.format(_port(task), _TABLES)]  # delays SIGTERM
    has_variables = cluster.environment or cluster.pass_environment
    # The proxy of a service mesh would outlive the task, and intercept its traffic.
    no_proxy = {"sidecar.istio.io/inject": "false"}
    found = made(
        "pod",
        job,
        name,
        {**no_proxy, **(labels or {})},
        group_change=settings.user and "OnRootMismatch",
        grace_secs=grace_secs(task.task_type, cluster.limits),
        arguments=[argument.replace("$", "$$") for argument in arguments],  # it replaces $(X)
        # The image's `all` would show others' GPUs.
        no_gpus=None if gpus else {"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"},
        port=_port(task),
        resources=resources,
        secrets=[{"secretRef": {"name": secret_name(name)}}] if has_variables else None,
        hold=hold if is_ps else None,
        data=_volume("data", settings.data),
        output=_volume("output", settings.output),
    )
    pod = found["spec"]
    if not any(needs(target, cluster.program, is_ps=is_ps) for target in (DATA, OUTPUT)):
        del pod["volumes"][1:], pod["containers"][0]["volumeMounts"][1:]
    pod |= json.loads(settings.pod)
    return found


def _volume(name: str, place: str) -> Manifest:
    server, colon, path = place.partition(":")
    is_read_only = {"readOnly": True} if name == "data" else {}
    if colon:
        return {"name": name, "nfs": {"server": server, "path": path, **is_read_only}}
    if place.startswith("/"):
        return {"name": name, "hostPath": {"path": place, "type": "Directory"}}
    return {"name": name, "persistentVolumeClaim": {"claimName": place, **is_read_only}}


def grace_secs(task_type: str, limits: Limits) -> int:
    """Returns the pod's `terminationGracePeriodSeconds`, a whole number."""
    # A ps serves until the last of the others has ended, so that the master can save.
    return math.ceil(limits.stop_secs) * (2 if task_type == "ps" else 1)


def overdue_secs(limits: Limits) -> int:
    """Returns the seconds after the deletion within which every pod should have ended."""
    return grace_secs("ps", limits) + _NODE_SECS


def name_of(job: Job, run_id: str = "") -> str:
    """Returns the name in the cluster of a job, of a run or only planned."""
    return f"{job.cluster.name or NAME}-{run_id}".rstrip("-")


def annotated(manifest: Manifest, **annotations: str) -> Manifest:
    """Returns a manifest with further annotations."""
    metadata = manifest["metadata"]
    notes = {**metadata.get("annotations", {}), **annotations}
    return {**manifest, "metadata": {**metadata, "annotations": notes}}


def restarts_of(manifest: Manifest) -> int:
    """Returns how often the task of a Job was restarted."""
    return int(manifest["metadata"].get("annotations", {}).get(RESTARTS, 0))


def secret_name(name: str) -> str:
    """Returns the name of a job's Secret."""
    return f"{name}-environment"


def job_name(name: str, task: str) -> str:
    """Returns the name of the Job of the task `task`; a TFJob's pods are called like this, too."""
    return f"{name}-{_host_name(task)}"


def selector(name: str) -> str:
    """Returns kubectl's option for the objects, and the pods, with a job's labels."""
    return f"{OURS},{_INSTANCE}={name}"


def as_yaml(manifests: "list[Manifest]") -> str:
    """Returns the manifests as YAML documents for `kubectl apply -f -`."""
    alone = json.loads(json.dumps(manifests))  # equal objects in full instead of as aliases
    return yaml.safe_dump_all(alone, sort_keys=False, width=100).rstrip("\n")


def _host_name(task: str) -> str:
    return task.replace("/", "-")


def _port(task: Task) -> int:
    """Returns the task's port; tasks of one role share it, since each has a pod of its own."""
    return task.port or FIRST_PORT
