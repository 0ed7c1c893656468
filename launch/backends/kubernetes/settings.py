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
  labels: {kueue.x-k8s.io/queue-name: lab}          # of every object and pod
  annotations: {example.com/cost: vision}
  image_pull_policy: Always       # or IfNotPresent, Never; default: by the image's tag
  user: 1000                      # of the processes; off: the cluster chooses one (OpenShift)
  pod: '{"nodeSelector": {"pool": "gpus"}}'         # further fields of each pod's spec, in JSON
  deadline_secs: 604800           # the job ends then, whoever follows it; or off
"""

import json
from dataclasses import dataclass
from typing import Optional

from launch.cluster.yaml_section import matching, seconds_or_off, setting, whole
from launch.errors import LaunchError

_DNS_NAME = r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?"
_SAFE_PATH = r"/(?!.*(^|/)\.\.(/|$))[^\0-\x1f\x7f-\x9f:]*"

_WORD = matching(r"[^\s-]\S*", "one word")  # whose meaning the cluster checks
_VOLUME = matching(
    rf"{_DNS_NAME}|{_SAFE_PATH}|{_DNS_NAME}:{_SAFE_PATH}",
    "a persistentVolumeClaim (records), a folder of the nodes (/records) or an NFS folder "
    "(server:/records)",
)
_KEY = matching(rf"({_DNS_NAME}/)?[A-Za-z0-9]([\w.-]{{0,61}}[A-Za-z0-9])?", "a key of Kubernetes")
_LABEL = matching(
    r"([A-Za-z0-9]([\w.-]{0,61}[A-Za-z0-9])?)?", "a label's value: 63 of A-Z a-z 0-9 . _ -"
)
_TEXT = matching(r"[^\0]*", "text")
_POLICY = matching("Always|IfNotPresent|Never", "Always, IfNotPresent or Never")
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


def _user(text: str) -> Optional[int]:
    return None if text == "off" else whole(1, 2**31 - 1, "`off` or ")(text)


def _operator(text: str) -> str:
    raise LaunchError(
        "is no key any more: `up` creates Jobs on every cluster, and `plan` shows a TFJob for "
        f"those with the training operator; leave it out, got {text!r}"
    )


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
      cpu: cores of each trainer and the evaluator, as request and limit.
      memory: memory of each trainer and the evaluator, as request and limit; the fast recipe has
        reached 5.1 GiB on 2 cores.
      ps_cpu: cores of each ps, as request and limit.
      ps_memory: memory of each ps, as request and limit.
      gpu: the resource that `gpus_per_task` counts.
      labels: (name, value) pairs of labels of every object and pod, as for queues.
      annotations: the same for annotations.
      image_pull_policy: when nodes pull the image; None: Kubernetes decides by the image's tag.
      user: the user and group id of the processes; None leaves them to the cluster.
      operator: None; a cluster file that names it is refused.
      pod: further fields of each pod's spec, such as `nodeSelector`, `tolerations` or
        `imagePullSecrets`, as a JSON object.
      deadline_secs: seconds after which the cluster ends the job and each pod, whether a launcher
        follows it or not; None for no limit.
    """

    image: str = setting("cifar10", _WORD)
    context: Optional[str] = setting(None, _WORD)
    namespace: Optional[str] = setting(None, _WORD)
    data: str = setting("cifar10-data", _VOLUME)
    output: str = setting("cifar10-output", _VOLUME)
    cpu: str = setting("2", _WORD)
    memory: str = setting("8Gi", _WORD)
    ps_cpu: str = setting("1", _WORD)
    ps_memory: str = setting("2Gi", _WORD)
    gpu: str = setting("nvidia.com/gpu", _WORD)
    labels: tuple[tuple[str, str], ...] = setting((), _LABEL, key_rule=_KEY)
    annotations: tuple[tuple[str, str], ...] = setting((), _TEXT, key_rule=_KEY)
    image_pull_policy: Optional[str] = setting(None, _POLICY)
    user: Optional[int] = setting(1000, _user)
    operator: Optional[str] = setting(None, _operator)
    pod: str = setting("{}", _pod)
    deadline_secs: Optional[float] = setting(604_800, seconds_or_off)
