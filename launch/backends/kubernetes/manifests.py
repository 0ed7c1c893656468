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

import copy
import json
import math
import posixpath
from functools import lru_cache
from importlib import resources
from typing import Any, Optional

import yaml

from launch.backends.kubernetes.settings import KubernetesSettings
from launch.cluster.model import FIRST_PORT, Limits
from launch.cluster.tasks import SCRIPT, Job, Task

Manifest = dict[str, Any]

NAME = "cifar10"  # of a planned job; a run's id follows in its own
RESTARTS = "cifar10-launch/restarts"  # annotation of a Job: how often its task was restarted
CONTAINER = "tensorflow"
_ROLES = {role.lower(): role for role in ("Master", "Chief", "Worker", "PS", "Evaluator")}
_INSTANCE = "app.kubernetes.io/instance"
_MANAGED_BY, _LAUNCHER = "app.kubernetes.io/managed-by", "cifar10-launch"
# The operator's labels of pods; those of Jobs get the same ones, so that all are read in one way.
JOB_NAME = "training.kubeflow.org/job-name"
TYPE, INDEX = "training.kubeflow.org/replica-type", "training.kubeflow.org/replica-index"
_KEPT_SECS = 86_400  # a finished job that no launcher removes
_WORKDIR = "/data"  # of the image
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


def _template(name: str) -> Manifest:
    """Returns a new object as `templates/objects.yaml` has it."""
    return copy.deepcopy(_templates()[name])


def _object(
    kind: str, job: Job, name: str, own: str, labels: Optional[Manifest] = None, **spec: Any
) -> Manifest:
    """Returns an object of the template with the name `own`, and fields of its spec."""
    found = _template(kind)
    found["metadata"] = _metadata(job, name, own, labels)
    found.get("spec", {}).update(spec)
    return found


def planned(job: Job) -> list[Manifest]:
    """Returns the manifests that `plan` shows: all but the Secret with the variables' values."""
    return [network_policy(job, NAME), service(job, NAME), *task_jobs(job, NAME).values()]


def network_policy(job: Job, name: str) -> Manifest:
    """Returns a policy that lets only the job's own pods reach its unprotected ports."""
    own = {"podSelector": {"matchLabels": {_INSTANCE: name}}}
    return _object("NetworkPolicy", job, name, name, **own, ingress=[{"from": [own]}])


def secret(job: Job, name: str, values: dict[str, str]) -> Manifest:
    """Returns a Secret with the variables that every task gets; no plan contains it."""
    return {**_object("Secret", job, name, secret_name(name)), "stringData": values}


def tfjob(job: Job, name: str) -> Manifest:
    """Returns the TFJob."""
    settings, restarts = job.cluster.section(KubernetesSettings), job.cluster.restarts
    first = {task.task_type: task for task in reversed(job.tasks)}
    policy = {
        # An evaluator still evaluates after the chief has ended; then it and the ps end by
        # themselves. Without an evaluator, the operator may delete the pods that still run.
        "cleanPodPolicy": "None" if "evaluator" in first else "Running",
        "ttlSecondsAfterFinished": _KEPT_SECS,
        "activeDeadlineSeconds": _deadline(settings),
        # Training operator 1.8 counts only restarts within a pod, and no pods that it makes anew:
        # the launcher counts those, and the deadline ends what nobody counts. With a limit of 0,
        # it would delete the failed pod with its log.
        "backoffLimit": restarts or None,
    }
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
    spec = {"runPolicy": _given(policy), "tfReplicaSpecs": replicas}
    return _object("TFJob", job, name, name, **spec)


def service(job: Job, name: str) -> Manifest:
    """Returns the headless Service that gives the pods of Jobs their names, `TYPE-INDEX.NAME`."""
    return _object("Service", job, name, name, selector={_INSTANCE: name})


def task_jobs(job: Job, name: str) -> dict[str, Manifest]:
    """Returns a Job for each task, by the task's name."""
    return {task.name: _task_job(job, task, name) for task in job.tasks}


def _task_job(job: Job, task: Task, name: str) -> Manifest:
    own = {JOB_NAME: name, TYPE: task.task_type, INDEX: str(task.index)}
    template = _pod_template(job, task, name, own)
    pod = template["spec"]
    pod |= {"restartPolicy": "Never", "hostname": _host_name(task.name), "subdomain": name}
    pod["containers"][0]["env"].append({"name": "TF_CONFIG", "value": tf_config(job, task, name)})
    return _object("Job", job, name, job_name(name, task.name), own, template=template)


def tf_config(job: Job, task: Task, name: str) -> str:
    """Returns the TF_CONFIG of a task's pod, with the names that the Service gives to pods."""
    cluster: dict[str, list[str]] = {}
    for member in job.tasks:
        if member.task_type != "evaluator":
            address = f"{_host_name(member.name)}.{name}:{_port(member)}"
            cluster.setdefault(member.task_type, []).append(address)
    place = {"type": task.task_type, "index": task.index}
    return json.dumps({"cluster": cluster, "task": place, "environment": "cloud"})


def _pod_template(job: Job, task: Task, name: str, labels: Optional[Manifest] = None) -> Manifest:
    """Returns the metadata and spec of a task's pod; the pods of a role differ in nothing."""
    settings, limits = job.cluster.section(KubernetesSettings), job.cluster.limits
    spec = _template("pod")
    user = dict.fromkeys(("runAsUser", "runAsGroup", "fsGroup"), settings.user)
    change = settings.user and "OnRootMismatch"
    spec["securityContext"] |= {**user, "fsGroupChangePolicy": change}
    spec["securityContext"] = _given(spec["securityContext"])
    # HOME is in /tmp; a pod that writes more is evicted.
    volumes: list[Manifest] = [{"name": "tmp", "emptyDir": {"sizeLimit": "1Gi"}}]
    if _has_volumes(job, task):
        volumes += [_volume("data", settings.data), _volume("output", settings.output)]
    spec |= {
        "terminationGracePeriodSeconds": grace_secs(task.task_type, limits),
        "containers": [_container(job, task, name)],
        "volumes": volumes,
        "activeDeadlineSeconds": _deadline(settings),
        **json.loads(settings.pod),
    }
    # The proxy of a service mesh would outlive the task, and intercept its traffic.
    no_proxy = {"sidecar.istio.io/inject": "false"}
    metadata = _metadata(job, name, None, {**no_proxy, **(labels or {})})
    return {"metadata": metadata, "spec": _given(spec)}


def _container(job: Job, task: Task, name: str) -> Manifest:
    settings, cluster = job.cluster.section(KubernetesSettings), job.cluster
    is_ps = task.task_type == "ps"
    gpus = 0 if is_ps else cluster.gpus_per_task or 0
    arguments = [posixpath.join(_WORKDIR, cluster.program or SCRIPT), *job.arguments]
    variables = [{"name": "PYTHONUNBUFFERED", "value": "1"}]
    if not gpus:  # the image's `all` would show others' GPUs
        variables.append({"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"})
    # The fast recipe has reached 5.1 GiB on 2 cores.
    resources = {"cpu": settings.cpu or "2", "memory": settings.memory or "8Gi"}
    if is_ps:
        resources = {"cpu": settings.ps_cpu or "1", "memory": settings.ps_memory or "2Gi"}
    if gpus:
        resources[settings.gpu] = str(gpus)
    secs = str(grace_secs("worker", cluster.limits))
    hold = ["timeout", secs, "sh", "-c", _HOLD.format(_port(task), _TABLES)]  # delays SIGTERM
    has_variables = cluster.environment or cluster.pass_environment
    container = _template("container")
    container["ports"][0]["containerPort"] = _port(task)
    mounts = container["volumeMounts"][: None if _has_volumes(job, task) else 1]
    container |= {
        "image": settings.image,
        "imagePullPolicy": settings.image_pull_policy,
        "args": [argument.replace("$", "$$") for argument in arguments],  # Kubernetes replaces $(X)
        "env": variables,
        "resources": {"requests": resources, "limits": resources},  # exactly what it asks for
        "volumeMounts": mounts,
        "envFrom": [{"secretRef": {"name": secret_name(name)}}] if has_variables else None,
        "lifecycle": {"preStop": {"exec": {"command": hold}}} if is_ps else None,
    }
    return _given(container)


def _has_volumes(job: Job, task: Task) -> bool:
    """Returns whether a task needs the volumes: a ps reads nothing, but its script may be there."""
    program = posixpath.join(_WORKDIR, job.cluster.program or "")
    volumes = f"{_WORKDIR}/data/", f"{_WORKDIR}/output/"
    return task.task_type != "ps" or program.startswith(volumes)


def _given(found: Manifest) -> Manifest:
    """Returns an object without the fields that are empty."""
    return {key: value for key, value in found.items() if value not in (None, [], {})}


def _deadline(settings: KubernetesSettings) -> Optional[int]:
    return None if settings.deadline_secs is None else math.ceil(settings.deadline_secs)


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


def name_of(run_id: str) -> str:
    """Returns the name of a run's job."""
    return f"{NAME}-{run_id}"


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
    return f"--selector={_INSTANCE}={name},{_MANAGED_BY}={_LAUNCHER}"


def as_yaml(manifests: "list[Manifest]") -> str:
    """Returns the manifests as YAML documents for `kubectl apply -f -`."""
    alone = json.loads(json.dumps(manifests))  # equal objects in full instead of as aliases
    return yaml.safe_dump_all(alone, sort_keys=False, width=100).rstrip("\n")


def _metadata(
    job: Job, instance: str, name: Optional[str], more: Optional[Manifest] = None
) -> Manifest:
    settings = job.cluster.section(KubernetesSettings)
    own = {"app.kubernetes.io/name": NAME, _INSTANCE: instance, _MANAGED_BY: _LAUNCHER}
    labels = {**dict(settings.labels), **own, **(more or {})}
    metadata = {"name": name, "labels": labels, "annotations": dict(settings.annotations)}
    return _given({**metadata, "namespace": settings.namespace if name else None})


def _host_name(task: str) -> str:
    return task.replace("/", "-")


def _port(task: Task) -> int:
    """Returns the task's port; tasks of one role share it, since each has a pod of its own."""
    return task.port or FIRST_PORT
