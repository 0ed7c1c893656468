"""Checks Kubernetes objects strictly, against published schemas.

The schemas are those of the packages `kubernetes` and `kubeflow-training`, which are generated from
the OpenAPI documents of Kubernetes and of the training operator. An object must have no field that
its schema lacks, all that it requires, and every field must have the schema's type.
"""

import functools
import importlib
import json
from types import SimpleNamespace
from typing import Any, Optional

_KINDS = {
    ("kubeflow.org/v1", "TFJob"): "KubeflowOrgV1TFJob",
    ("batch/v1", "Job"): "V1Job",
    ("networking.k8s.io/v1", "NetworkPolicy"): "V1NetworkPolicy",
    ("v1", "Service"): "V1Service",
    ("v1", "Secret"): "V1Secret",
    ("v1", "Pod"): "V1Pod",
}
_ENUMS = {
    "cleanPodPolicy": ("All", "Running", "None"),
    "imagePullPolicy": ("Always", "IfNotPresent", "Never"),
    "restartPolicy": ("Always", "OnFailure", "Never", "ExitCode"),
    "terminationMessagePolicy": ("File", "FallbackToLogsOnError"),
    "fsGroupChangePolicy": ("OnRootMismatch", "Always"),
    "protocol": ("TCP", "UDP", "SCTP"),
}


@functools.cache
def _client() -> Any:
    return importlib.import_module("kubeflow.training.api_client").ApiClient()  # takes seconds


def check_object(found: dict[str, Any]) -> list[str]:
    """Returns the violations of the schema that were found in an object; empty if it is valid."""
    kind = (found.get("apiVersion", ""), found.get("kind", ""))
    if kind not in _KINDS:
        return [f"no such kind: {kind}"]
    answer = SimpleNamespace(data=json.dumps(found))
    try:
        read = _client().sanitize_for_serialization(_client().deserialize(answer, _KINDS[kind]))
    except ValueError as error:
        return [str(error)]
    errors = [] if read == found else [f"of {found}, the schema knows {read}"]
    return errors + _unknown_words(found)


def _unknown_words(found: Any) -> list[str]:
    if isinstance(found, list):
        return [error for part in found for error in _unknown_words(part)]
    if not isinstance(found, dict):
        return []
    errors = [
        f"{key}: {value}" for key, value in found.items() if value not in _ENUMS.get(key, [value])
    ]
    return errors + _unknown_words([*found.values()])


def check_pod_security(pod: dict[str, Any]) -> Optional[str]:
    """Returns how a pod violates the Pod Security Standard `restricted`; None if it does not."""
    context = pod.get("securityContext", {})
    if context.get("runAsNonRoot") is not True or context.get("runAsUser") == 0:
        return "runAsNonRoot"
    if context.get("seccompProfile", {}).get("type") != "RuntimeDefault":
        return "seccompProfile"
    if any(pod.get(key) for key in ("hostNetwork", "hostPID", "hostIPC")):
        return "host namespaces"
    for container in [*pod["containers"], *pod.get("initContainers", [])]:
        own = container.get("securityContext", {})
        if own.get("allowPrivilegeEscalation") is not False or own.get("privileged"):
            return "allowPrivilegeEscalation"
        if own.get("capabilities") != {"drop": ["ALL"]}:
            return "capabilities"
    allowed = {"configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "projected", "secret"}
    allowed |= {"persistentVolumeClaim", "name"}
    for volume in pod.get("volumes", []):
        if set(volume) - allowed:
            return f"volume {volume['name']}"
    return None
