"""The `kubernetes:` section of a cluster file: what it can say, and how it is read.

kubernetes:                       # nothing must be there; each line shows its default or a use
  image: registry.example/cifar10:3                 # default: cifar10
  image_pull_policy: IfNotPresent
  image_pull_secrets: [registry-key]
  context: lab                    # default: the kubeconfig's current one
  namespace: vision               # default: the context's
  name: cifar10                   # the TFJob is NAME-RUN
  data: cifar10-data              # a claim, /path on every node, or server:/path (NFS)
  output: cifar10-output
  cpu: 4                          # what each trainer asks for; ps_cpu: each ps
  memory: 8Gi                     # the most that each may use, too; ps_memory: each ps
  gpu: nvidia.com/gpu             # what gpus_per_task counts
  node_selector: {pool: gpus}
  tolerations: ["nvidia.com/gpu:NoSchedule"]        # KEY:EFFECT or KEY=VALUE:EFFECT
  ttl_secs: 86400                 # a finished job that nobody follows is removed then
"""

import re
from dataclasses import dataclass
from typing import Callable, Optional

from launch.cluster import yaml_section as rules
from launch.cluster.model import Cluster
from launch.cluster.yaml_section import Section
from launch.errors import LaunchError

_LABEL = r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?"
_DNS_NAME = rf"{_LABEL}(\.{_LABEL})*"
_QUALIFIED = rf"({_DNS_NAME}/)?[A-Za-z0-9]([A-Za-z0-9_.-]{{0,61}}[A-Za-z0-9])?"
_LABEL_VALUE = r"([A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?)?"
_SAFE_PATH = r"/(?!.*(^|/)\.\.(/|$))[^\0\r\n:]*"
TAINT = re.compile(
    rf"(?P<key>{_QUALIFIED})(=(?P<value>{_LABEL_VALUE}))?"
    r":(?P<effect>NoSchedule|PreferNoSchedule|NoExecute)"
)


def _rule(pattern: str, words: str) -> Callable[[str], str]:
    return rules.matching(re.compile(pattern), words)


_IMAGE = _rule(
    r"[a-z0-9][a-zA-Z0-9_.:/-]*(@sha256:[0-9a-f]{64})?", "an image, such as registry/cifar10:3"
)
_POLICY = _rule("Always|IfNotPresent|Never", "Always, IfNotPresent or Never")
_NAME = _rule(_DNS_NAME, "a name of small letters, digits, - and .")
_NAMESPACE = _rule(_LABEL, "a namespace of small letters, digits and -")
_CONTEXT = _rule(r"[^\s-]\S*", "the name of a context (`kubectl config get-contexts`)")
_JOB = _rule(
    r"[a-z]([a-z0-9-]{0,28}[a-z0-9])?",
    "at most 30 small letters, digits and -, a letter first (the run's id follows it)",
)
_VOLUME = _rule(
    rf"{_DNS_NAME}|{_SAFE_PATH}|{_DNS_NAME}:{_SAFE_PATH}",
    "a persistentVolumeClaim (records), a folder of the nodes (/records) or an NFS folder "
    "(server:/records)",
)
_CPU = _rule(r"[1-9][0-9]*m?|[0-9]+\.[0-9]{1,3}", "a number of cores, such as 4 or 500m")
_MEMORY = _rule(r"[1-9][0-9]*([kMGT]|[KMGT]i)?", "an amount of memory, such as 8Gi")
_RESOURCE = _rule(_QUALIFIED, "a resource, such as nvidia.com/gpu")
_KEY = _rule(_QUALIFIED, "a node's label, such as kubernetes.io/arch")
_VALUE = _rule(_LABEL_VALUE, "a label's value of letters, digits, - _ .")
_TAINT = _rule(TAINT.pattern, "a taint as KEY:EFFECT or KEY=VALUE:EFFECT (gpu:NoSchedule)")


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


def settings_of(cluster: Cluster) -> KubernetesSettings:
    """What a cluster's description says; the defaults where it says nothing."""
    found: KubernetesSettings = cluster.settings.get("kubernetes", KubernetesSettings())
    return found


def read_settings(section: Section) -> KubernetesSettings:
    """Reads and checks the section.

    Raises:
      LaunchError: with the file's line, the value, the rule and the way out.
    """
    plain = KubernetesSettings()
    settings = KubernetesSettings(
        image=section.take("image", _IMAGE, plain.image),
        image_pull_policy=section.take("image_pull_policy", _POLICY, plain.image_pull_policy),
        image_pull_secrets=_list(section, "image_pull_secrets", _NAME),
        context=section.take("context", _CONTEXT, None),
        namespace=section.take("namespace", _NAMESPACE, None),
        name=section.take("name", _JOB, plain.name),
        data=section.take("data", _VOLUME, plain.data),
        output=section.take("output", _VOLUME, plain.output),
        cpu=section.take("cpu", _CPU, None),
        memory=section.take("memory", _MEMORY, None),
        ps_cpu=section.take("ps_cpu", _CPU, None),
        ps_memory=section.take("ps_memory", _MEMORY, None),
        gpu=section.take("gpu", _RESOURCE, plain.gpu),
        node_selector=_labels(section.section("node_selector")),
        tolerations=_list(section, "tolerations", _TAINT),
        ttl_secs=section.take("ttl_secs", rules.whole(0, 10_000_000), plain.ttl_secs),
    )
    section.finish()
    return settings


def _list(section: Section, key: str, parse: Callable[[str], str]) -> tuple[str, ...]:
    return tuple(section.parse(key, node, parse) for node in section.items(key))


def _labels(section: Optional[Section]) -> tuple[tuple[str, str], ...]:
    if section is None:
        return ()
    found = section.rest()
    for key, node in found.items():
        try:
            _KEY(key)
        except LaunchError as error:
            raise section.error(node, f"node_selector: {key} {error}") from None
    return tuple((key, section.parse(key, node, _VALUE)) for key, node in found.items())
