"""Checks Kubernetes objects strictly, against published schemas and the training operator's rules.

The schemas are those of the packages `kubernetes` and `kubeflow-training`, which are generated from
the OpenAPI documents of Kubernetes and of the training operator. An object must have no field that
its schema lacks, all that it requires, and every field must have the schema's type. The schemas are
read from the packages' sources, since an import of the packages takes seconds.
"""

import ast
import functools
import importlib.util
import re
from pathlib import Path
from typing import Any, Optional

_KINDS = {
    ("kubeflow.org/v1", "TFJob"): "KubeflowOrgV1TFJob",
    ("batch/v1", "Job"): "V1Job",
    ("networking.k8s.io/v1", "NetworkPolicy"): "V1NetworkPolicy",
    ("v1", "Service"): "V1Service",
    ("v1", "Secret"): "V1Secret",
    ("v1", "Pod"): "V1Pod",
}
_PLAIN = {"str": str, "bool": bool, "float": float, "datetime": str, "Quantity": str}
_ENUMS = {
    "cleanPodPolicy": {"All", "Running", "None"},
    "imagePullPolicy": {"Always", "IfNotPresent", "Never"},
    "restartPolicy": {"Always", "OnFailure", "Never", "ExitCode"},
    "terminationMessagePolicy": {"File", "FallbackToLogsOnError"},
    "fsGroupChangePolicy": {"OnRootMismatch", "Always"},
    "effect": {"NoSchedule", "PreferNoSchedule", "NoExecute"},
    "operator": {"Exists", "Equal"},
    "protocol": {"TCP", "UDP", "SCTP"},
}


def check_object(found: dict[str, Any]) -> list[str]:
    """Returns every violation of the schema in an object; empty if it is valid."""
    kind = (found.get("apiVersion", ""), found.get("kind", ""))
    if kind not in _KINDS:
        return [f"no such kind: {kind}"]
    return _check(found, _KINDS[kind], kind[1])


def _check(value: Any, type_name: str, path: str) -> list[str]:
    listed = re.fullmatch(r"list\[(.*)\]", type_name)
    mapped = re.fullmatch(r"dict\(str, (.*)\)", type_name)
    if listed:
        if not isinstance(value, list):
            return [f"{path} must be a list, is {value!r}"]
        return [e for i, one in enumerate(value) for e in _check(one, listed[1], f"{path}[{i}]")]
    if mapped:
        if not isinstance(value, dict):
            return [f"{path} must be a mapping, is {value!r}"]
        return [e for key, one in value.items() for e in _check(one, mapped[1], f"{path}.{key}")]
    if type_name == "object":
        return []
    if type_name == "int":
        return [] if type(value) is int else [f"{path} must be a whole number, is {value!r}"]
    if type_name in _PLAIN:
        right = isinstance(value, _PLAIN[type_name])
        return [] if right else [f"{path} must be {type_name}, is {value!r}"]
    return _check_model(value, type_name, path)


def _check_model(value: Any, type_name: str, path: str) -> list[str]:
    types, required = _schema(type_name)
    if not isinstance(value, dict):
        return [f"{path} must be a mapping, is {value!r}"]
    errors = [f"{path} knows no {key}" for key in value if key not in types]
    errors += [f"{path} needs {key}" for key in required if value.get(key) is None]
    for key in value.keys() & types.keys():
        errors += _check(value[key], types[key], f"{path}.{key}")
        if key in _ENUMS and value[key] not in _ENUMS[key]:
            errors.append(f"{path}.{key} must be one of {sorted(_ENUMS[key])}, is {value[key]!r}")
    return errors


@functools.cache
def _schema(type_name: str) -> tuple[dict[str, str], set[str]]:
    """Returns the type of each field of a model, and the fields that it requires."""
    module = re.sub(r"(.)([A-Z][a-z]+)", r"\1_\2", type_name)
    module = re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", module).lower()
    folders = [_folder("kubeflow/training/models"), _folder("kubernetes/client/models")]
    (source, *_) = (path for one in folders if (path := one / f"{module}.py").is_file())
    text = source.read_text(encoding="utf-8")
    types, names = (
        ast.literal_eval(re.findall(rf"^    {name} = (\{{.*?^    \}})", text, re.M | re.S)[0])
        for name in ("openapi_types", "attribute_map")
    )
    required = re.findall(r"Invalid value for `(\w+)`, must not be `None`", text)
    return {names[name]: one for name, one in types.items()}, {names[name] for name in required}


def _folder(path: str) -> Path:
    """Returns a folder in a package, which is not imported."""
    package, _, rest = path.partition("/")
    spec = importlib.util.find_spec(package)
    assert spec is not None
    assert spec.submodule_search_locations is not None
    return Path(next(iter(spec.submodule_search_locations))) / rest


ROLES = ("Chief", "Master", "PS", "Worker", "Evaluator")
_LABEL = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")


def check_operator_rules(job: dict[str, Any]) -> list[str]:
    """Returns a TFJob's violations of the training operator's rules that no schema states."""
    name, spec = job["metadata"]["name"], job["spec"]
    replicas = spec.get("tfReplicaSpecs") or {}
    errors = [f"no such role: {role}" for role in replicas if role not in ROLES]
    if not _LABEL.fullmatch(name):
        errors.append(f"{name} is no DNS-1035 label")
    leads = sum(
        replicas[role].get("replicas", 1) for role in ("Chief", "Master") if role in replicas
    )
    if leads != 1:
        errors.append(f"{leads} chiefs and masters; there must be one")
    for key in ("cleanPodPolicy", "ttlSecondsAfterFinished", "backoffLimit"):
        if key in spec:
            errors.append(f"{key} belongs into spec.runPolicy")
    for role, replica in replicas.items():
        errors += _check_replica(name, role, replica)
    return errors


def _check_replica(name: str, role: str, replica: dict[str, Any]) -> list[str]:
    errors = []
    pod = replica["template"]["spec"]
    containers = [one for one in pod["containers"] if one["name"] == "tensorflow"]
    longest = f"{name}-{role.lower()}-{replica.get('replicas', 1) - 1}"
    if len(longest) > 63:
        errors.append(f"{longest} is too long for a service's name")
    if len(containers) != 1:
        errors.append(f"{role}: one container must be called tensorflow")
    if "restartPolicy" in pod:
        errors.append(f"{role}: the pod's restartPolicy is overwritten by the replica's")
    for container in containers:
        if not container.get("image"):
            errors.append(f"{role}: no image")
        if "command" in container:
            errors.append(f"{role}: a command hides the image's entry point")
        if any(one["name"] == "TF_CONFIG" for one in container.get("env", [])):
            errors.append(f"{role}: TF_CONFIG is the operator's")
        ports = [port for port in container.get("ports", []) if port["name"] == "tfjob-port"]
        if len(ports) != 1:
            errors.append(f"{role}: one port must be called tfjob-port")
    return errors


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
