"""The settings in the `kubernetes:` section of a cluster file.

kubernetes:                       # each key is optional; lines show the default or an example
  image: registry.example/cifar10:3                 # default: cifar10
  context: lab                    # default: the kubeconfig's current one
  namespace: vision               # default: the context's
  data: cifar10-data              # a claim, /path on every node, or server:/path (NFS)
  output: cifar10-output
  cpu: 4                          # of each trainer (default: 2); ps_cpu: of each ps (1)
  memory: 8Gi                     # of each trainer (default: 8Gi); ps_memory: of each ps (2Gi)
  gpu: nvidia.com/gpu             # what gpus_per_task counts
  operator: auto                  # tfjob: a TFJob; none: a Job for each task; auto: what there is
  pod: '{"nodeSelector": {"pool": "gpus"}}'         # further fields of each pod's spec, in JSON
  deadline_secs: 604800           # the job ends then, whoever follows it; or off
"""

import json
from dataclasses import dataclass
from typing import Optional

from launch.cluster.model import Cluster
from launch.cluster.yaml_section import matching, seconds_or_off, setting
from launch.errors import LaunchError

_LABEL = r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?"
_DNS_NAME = rf"{_LABEL}(\.{_LABEL})*"
_QUALIFIED = rf"({_DNS_NAME}/)?[A-Za-z0-9]([A-Za-z0-9_.-]{{0,61}}[A-Za-z0-9])?"
_SAFE_PATH = r"/(?!.*(^|/)\.\.(/|$))[^\0-\x1f\x7f-\x9f:]*"

_IMAGE = matching(
    r"[a-z0-9][a-zA-Z0-9_.:/-]*(@sha256:[0-9a-f]{64})?", "an image, such as registry/cifar10:3"
)
_NAMESPACE = matching(_LABEL, "a namespace of small letters, digits and -")
_CONTEXT = matching(r"[^\s-]\S*", "the name of a context (`kubectl config get-contexts`)")
_VOLUME = matching(
    rf"{_DNS_NAME}|{_SAFE_PATH}|{_DNS_NAME}:{_SAFE_PATH}",
    "a persistentVolumeClaim (records), a folder of the nodes (/records) or an NFS folder "
    "(server:/records)",
)
_CPU = matching(r"[1-9][0-9]*m?|[0-9]+\.[0-9]{1,3}", "a number of cores, such as 4 or 500m")
_MEMORY = matching(r"[1-9][0-9]*([kMGT]|[KMGT]i)?", "an amount of memory, such as 8Gi")
_OPERATOR = matching("tfjob|none|auto", "tfjob, none or auto")
_RESOURCE = matching(_QUALIFIED, "a resource, such as nvidia.com/gpu")
# Fields of a pod's spec that the launcher sets, or that would undo its restrictions.
_OURS = (
    "activeDeadlineSeconds automountServiceAccountToken containers enableServiceLinks hostIPC "
    "hostNetwork hostPID hostname initContainers restartPolicy securityContext subdomain "
    "terminationGracePeriodSeconds volumes"
)


def _pod(text: str) -> str:
    """Checks further fields of a pod's spec; what is left to check, the cluster checks."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict) or found.keys() & set(_OURS.split()):
        words = f"must be fields of a pod's spec as JSON, and none of {_OURS}"
        raise LaunchError(f"{words}, which the launcher sets, got {text!r}")
    return text


@dataclass(frozen=True)
class KubernetesSettings:
    """The `kubernetes:` section of a cluster file.

    A volume is a persistentVolumeClaim by its name, a folder of the nodes (`/records`), or an NFS
    folder (`server:/records`).

    Attributes:
      image: the image, with the code at /data and `python` as entry point, as the Dockerfile builds
        it.
      context: a context of the kubeconfig; None for the current one.
      namespace: the namespace of all objects; None for the context's.
      data: the volume with the records, mounted read-only at /data/data.
      output: the volume for checkpoints and figures, mounted at /data/output.
      cpu: cores of each trainer and the evaluator, as request and limit; None for 2.
      memory: memory of each trainer and the evaluator, as request and limit; None for 8Gi.
      ps_cpu: cores of each ps, as request and limit; None for 1.
      ps_memory: memory of each ps, as request and limit; None for 2Gi.
      gpu: the resource that `gpus_per_task` counts.
      operator: `tfjob` for a TFJob, which Kubeflow's training operator runs; `none` for a Job of
        Kubernetes itself for each task; `auto` for a TFJob if the cluster knows TFJobs.
      pod: further fields of each pod's spec, such as `nodeSelector`, `tolerations` or
        `imagePullSecrets`, as a JSON object.
      deadline_secs: seconds after which the cluster ends the job and each pod, whether a launcher
        follows it or not; None for no limit.
    """

    image: str = setting("cifar10", _IMAGE)
    context: Optional[str] = setting(None, _CONTEXT)
    namespace: Optional[str] = setting(None, _NAMESPACE)
    data: str = setting("cifar10-data", _VOLUME)
    output: str = setting("cifar10-output", _VOLUME)
    cpu: Optional[str] = setting(None, _CPU)
    memory: Optional[str] = setting(None, _MEMORY)
    ps_cpu: Optional[str] = setting(None, _CPU)
    ps_memory: Optional[str] = setting(None, _MEMORY)
    gpu: str = setting("nvidia.com/gpu", _RESOURCE)
    operator: str = setting("auto", _OPERATOR)
    pod: str = setting("{}", _pod)
    deadline_secs: Optional[float] = setting(604_800, seconds_or_off)


def settings_of(cluster: Cluster) -> KubernetesSettings:
    """Returns the settings of the `kubernetes:` section, or the defaults if there is no section."""
    found: KubernetesSettings = cluster.settings.get("kubernetes", KubernetesSettings())
    return found
