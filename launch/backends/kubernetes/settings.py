"""What `backend: kubernetes` can be told."""

from dataclasses import dataclass
from typing import Optional


@dataclass(frozen=True)
class KubernetesSettings:
    """The `kubernetes:` section of a cluster file.

    A volume is a persistentVolumeClaim by its name, a folder of the nodes (`/records`), or an NFS
    folder (`server:/records`).

    Attributes:
      image: holds the code at /data, with `python` as its entry point, as the Dockerfile makes it.
      image_pull_policy: Always, IfNotPresent or Never.
      image_pull_secrets: names of Secrets with a registry's credentials.
      context: of the kubeconfig; None takes the current one.
      namespace: None takes the context's.
      name: what the TFJob's name begins with; the run's id follows.
      data: the volume with the records, mounted read-only at /data/data.
      output: the volume for checkpoints and figures, mounted at /data/output.
      cpu: cores that each trainer and the evaluator ask for; None asks for none.
      memory: what each of them may use at most, and asks for.
      ps_cpu: cores that each ps asks for.
      ps_memory: what each ps may use at most, and asks for.
      gpu: the resource that `gpus_per_task` counts.
      node_selector: (label, value) that a node must have.
      tolerations: taints that do not matter, as `kubectl taint` writes them.
      ttl_secs: after so long the cluster removes a finished job whose launcher could not.
    """

    image: str = "cifar10"
    image_pull_policy: str = "IfNotPresent"
    image_pull_secrets: tuple[str, ...] = ()
    context: Optional[str] = None
    namespace: Optional[str] = None
    name: str = "cifar10"
    data: str = "cifar10-data"
    output: str = "cifar10-output"
    cpu: Optional[str] = None
    memory: Optional[str] = None
    ps_cpu: Optional[str] = None
    ps_memory: Optional[str] = None
    gpu: str = "nvidia.com/gpu"
    node_selector: tuple[tuple[str, str], ...] = ()
    tolerations: tuple[str, ...] = ()
    ttl_secs: int = 86_400
