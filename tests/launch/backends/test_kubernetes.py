"""The objects that a description becomes, the hook of a ps, and calls of kubectl."""

import json
import re
import socket
import subprocess
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from launch.backends.kubernetes import manifests
from launch.backends.kubernetes.kubectl import JobObjects, Kubectl
from launch.backends.kubernetes.settings import KubernetesSettings
from launch.backends.registry import BACKENDS
from launch.cluster import show
from launch.cluster.model import Cluster
from launch.cluster.tasks import make_job
from launch.errors import HostError, LaunchError, NotHereError
from tests.launch.backends.samples import kubernetes_cluster, read
from tests.launch.kube_schema import check_object, check_pod_security
from tests.launch.launcher import ROOT, has_ended, put_script, wait_for

GOLDEN = Path(__file__).with_name("kubernetes_plan.yaml")
FULL = """\
backend: kubernetes
tasks: {chief: 1, worker: 1, ps: 1}
gpus_per_task: 2
ports: 3000
restarts: 3
environment: {OMP_NUM_THREADS: hidden}
pass_environment: [API_TOKEN]
limits: {stop_secs: 90}
kubernetes:
  image: registry.example:5000/vision/cifar10:3
  context: lab
  namespace: vision
  data: nfs.example:/records
  output: results
  cpu: 4
  memory: 16Gi
  ps_cpu: 500m
  ps_memory: 3Gi
  gpu: amd.com/gpu
  pod: '{"nodeSelector": {"pool": "gpus"}, "tolerations": [{"key": "gpu", "operator": "Exists"}]}'
  deadline_secs: 7200
"""


def small(**settings: Any) -> Cluster:
    """A master, a worker and a ps."""
    found = {"kubernetes": KubernetesSettings(**settings)}
    return replace(kubernetes_cluster(), settings=found)


def tfjob(cluster: Cluster, *arguments: str, name: str = "cifar10") -> dict[str, Any]:
    return manifests.tfjob(make_job(cluster, arguments), name)


def put_kubectl(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    put_script(folder / "kubectl", script)
    monkeypatch.setenv("PATH", str(folder), prepend=":")


def replicas(job: dict[str, Any]) -> dict[str, Any]:
    return dict(job["spec"]["tfReplicaSpecs"])


def pod(job: dict[str, Any], role: str) -> dict[str, Any]:
    return dict(replicas(job)[role]["template"]["spec"])


def container(job: dict[str, Any], role: str) -> dict[str, Any]:
    return dict(pod(job, role)["containers"][0])


def test_the_plan_is_literally_this_and_says_no_values_of_variables(tmp_path: Path) -> None:
    job = make_job(read(tmp_path, FULL), ["--train-batch-size=16", "$(HOME) $$x"])
    backend = BACKENDS["kubernetes"]
    assert f"{backend.plan_text(job)}\n" == GOLDEN.read_text()
    planned = list(yaml.safe_load_all(GOLDEN.read_text()))
    assert list(yaml.safe_load_all(show.as_documents(backend.plan(job)))) == planned
    assert [manifest["kind"] for manifest in planned] == ["NetworkPolicy", "Service", *["Job"] * 3]
    tfjob = "".join(re.findall("^#T (.*\n)", GOLDEN.read_text(), re.MULTILINE))
    assert yaml.safe_load(tfjob) == manifests.tfjob(job, "cifar10")
    assert "hidden" not in GOLDEN.read_text()


@pytest.mark.parametrize(
    ("line", "error"),
    [
        ("context: --kubeconfig=x", "context must be one word, got '--kubeconfig=x'"),
        ("data: ../up", "data must be a persistentVolumeClaim"),
        ("memory: 8 GB", "memory must be one word, got '8 GB'"),
        ("pod: '{gpu: 1}'", "pod must be fields of a pod's spec as JSON"),
        ("labels: {queue: a b}", "queue must be a label's value"),
        ("user: 0", "user must be `off` or a whole number"),
        ("image_pull_policy: always", "image_pull_policy must be Always, IfNotPresent or Never"),
        ("pod: '[]'", "pod must be fields of a pod's spec as JSON"),
        ("operator: auto", "operator is no key any more: `up` creates Jobs on every cluster"),
        ("pod: '{\"hostNetwork\": true}'", "pod must be fields of a pod's spec as JSON"),
    ],
)
def test_mistakes_are_refused_with_their_line(tmp_path: Path, line: str, error: str) -> None:
    text = f"backend: kubernetes\ntasks: {{master: 1}}\nkubernetes:\n  {line}\n"
    with pytest.raises(LaunchError) as raised:
        read(tmp_path, text)
    assert f"lab.yaml:4: {error}" in str(raised.value)


def test_a_job_without_a_deadline_has_none() -> None:
    job = tfjob(small(deadline_secs=None))
    assert "activeDeadlineSeconds" not in {**job["spec"]["runPolicy"], **pod(job, "PS")}


@pytest.mark.parametrize("text", [FULL, "backend: kubernetes\ntasks: {master: 1, ps: 1}\n"])
def test_kubernetes_and_the_training_operator_would_take_all(tmp_path: Path, text: str) -> None:
    job = make_job(read(tmp_path, text), ["--train-batch-size=16"])
    found = manifests.tfjob(job, "cifar10")
    secret = manifests.secret(job, "cifar10", {"A": "b"})
    for manifest in (found, secret, *manifests.planned(job)):
        assert check_object(manifest) == []


def test_the_longest_names_are_short_enough() -> None:
    job = make_job(replace(kubernetes_cluster(chief=1, worker=1000, evaluator=1), name="n" * 30))
    jobs = manifests.task_jobs(job, manifests.name_of(job, "20260101-000000-ffff")).values()
    assert max(len(job["metadata"]["name"]) for job in jobs) <= 63  # as a label's value


def test_pods_are_as_restricted_as_they_can_be() -> None:
    job = tfjob(small())
    for role in replicas(job):
        assert check_pod_security(pod(job, role)) is None
        assert pod(job, role)["automountServiceAccountToken"] is False
        assert container(job, role)["securityContext"]["readOnlyRootFilesystem"] is True
        writable = {m["mountPath"] for m in container(job, role)["volumeMounts"]
                    if not m.get("readOnly")}  # fmt: skip
        assert writable == ({"/tmp"} if role == "PS" else {"/tmp", "/data/output"})
        cores, memory = ("1", "2Gi") if role == "PS" else ("2", "8Gi")
        assert container(job, role)["resources"]["limits"] == {"cpu": cores, "memory": memory}


def test_without_restarts_the_first_failure_ends_the_job() -> None:
    """The operator itself would make pods anew for ever, once the launcher has gone."""
    job = tfjob(small())
    assert {replica["restartPolicy"] for replica in replicas(job).values()} == {"Never"}
    assert "backoffLimit" not in job["spec"]["runPolicy"]


def test_an_evaluator_may_go_on_after_the_chief() -> None:
    job = tfjob(kubernetes_cluster(chief=1, evaluator=1))
    assert job["spec"]["runPolicy"]["cleanPodPolicy"] == "None"


@pytest.mark.parametrize(
    ("place", "volume"),
    [
        ("records", {"persistentVolumeClaim": {"claimName": "records", "readOnly": True}}),
        ("/records", {"hostPath": {"path": "/records", "type": "Directory"}}),
    ],
)
def test_the_records_are_a_claim_or_a_folder(place: str, volume: dict[str, Any]) -> None:
    job = tfjob(small(data=place))
    assert {"name": "data", **volume} in pod(job, "Worker")["volumes"]
    mount = {"name": "data", "mountPath": "/data/data", "readOnly": True}
    assert mount in container(job, "Worker")["volumeMounts"]
    assert [volume["name"] for volume in pod(job, "PS")["volumes"]] == ["tmp"]


def test_labels_are_those_of_every_object_and_pod_and_never_the_launchers() -> None:
    own, notes = (("app.kubernetes.io/instance", "x"), ("queue", "lab")), (("cost", "a b"),)
    job = make_job(small(labels=own, annotations=notes, user=None))
    objects = [*manifests.planned(job), manifests.secret(job, "cifar10", {})]
    jobs = [manifest["spec"]["template"] for manifest in objects if manifest["kind"] == "Job"]
    for metadata in (manifest["metadata"] for manifest in [*objects, *jobs]):
        assert metadata["labels"]["queue"] == "lab"
        assert metadata["labels"]["app.kubernetes.io/instance"] == "cifar10"
        assert metadata["annotations"] == {"cost": "a b"}
    for template in jobs:  # OpenShift gives them a user
        context = {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
        assert template["spec"]["securityContext"] == context


def test_only_the_jobs_own_pods_reach_its_ports() -> None:
    policy, service, *jobs = manifests.planned(make_job(small()))
    own = {"matchLabels": {"app.kubernetes.io/instance": "cifar10"}}
    assert policy["spec"]["podSelector"] == own
    assert policy["spec"]["ingress"] == [{"from": [{"podSelector": own}]}]
    assert service["spec"]["selector"] == own["matchLabels"]
    for job, port in zip(jobs, (2222, 2222, 2223)):
        pod = job["spec"]["template"]
        assert own["matchLabels"].items() <= pod["metadata"]["labels"].items()
        assert pod["spec"]["containers"][0]["ports"][0]["containerPort"] == port


# The ps's preStop hook, as it stands in the manifest.


def start_hook(port: int, secs: float) -> "subprocess.Popen[bytes]":
    job = tfjob(replace(small(), ports=port - 1))
    timeout, _, *command = container(job, "PS")["lifecycle"]["preStop"]["exec"]["command"]
    return subprocess.Popen([timeout, str(secs), *command])


def test_a_ps_ends_when_the_last_trainer_has_gone_and_does_not_wait_for_ever() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)):
            accepted, _ = server.accept()
            patient, other = start_hook(port, 60), start_hook(port, 2)
            time.sleep(1.3)
            assert patient.poll() is None
            assert other.wait(60) == 124
            assert patient.poll() is None
        accepted.close()
        assert patient.wait(20) == 0


# What kubectl complains of.


@pytest.mark.parametrize(
    ("errors", "words"),
    [
        ("Error from server (Forbidden): exceeded quota", "kubectl: Error from server (Forbidden)"),
        (
            'services is forbidden: User "lab" cannot create resource "services" in API group "" '
            'in the namespace "x"',
            "kubernetes: user lab may not create services in namespace x; docs/launch.md has the R",
        ),
        ("", "kubectl: it failed without an error message"),
    ],
)
def test_what_kubectl_complains_of_is_said_in_one_line(errors: str, words: str) -> None:
    explained = str(Kubectl("lab", "vision").error(errors))
    assert words in explained
    assert "\n" not in explained


def test_without_kubectl_a_context_or_a_service_nothing_is_submitted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(NotHereError, match="choose one: kubectl config use-context NAME"):
        raise Kubectl(None, None).error("error: current-context is not set\n")
    put_kubectl(tmp_path, monkeypatch, "echo 'connection refused' >&2; exit 1\n")
    with pytest.raises(NotHereError, match="kubectl: connection refused"):
        JobObjects(Kubectl("lab", "vision"), "cifar10-1").create({"metadata": {}}, (), {})
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(NotHereError, match="no kubectl on PATH here; install it"):
        Kubectl(None, None)("get", "pods")


def test_check_asks_for_the_rights_of_the_documented_role_the_claims_and_a_dry_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = (ROOT / "docs/launch.md").read_text().partition("```yaml\napiVersion: rbac")[2]
    role = ROOT / "launch/backends/kubernetes/templates/role.yaml"
    assert role.read_text() == "apiVersion: rbac" + text.partition("```")[0]
    put_kubectl(
        tmp_path,
        monkeypatch,
        f"""
        echo "$@" >>{tmp_path}/calls
        case "$*" in
          *config*) echo lab vision ;;
          *can-i*list*events*) cat {tmp_path}/may ;;
          *can-i*) echo yes ;;
          *create*) cat >{tmp_path}/given; echo pod/a pod/b ;;
        esac""",
    )
    (tmp_path / "may").write_text("no")
    job, backend = make_job(small(data="nas:/records")), BACKENDS["kubernetes"]
    with pytest.raises(HostError, match="you may not list events in namespace vision of lab; docs"):
        backend.check(job)
    (tmp_path / "may").write_text("yes")
    assert backend.check(job).said == [
        "namespace vision of lab: it would take all 2 objects", "claims: cifar10-output",
    ]  # fmt: skip
    calls = (tmp_path / "calls").read_text()
    assert re.search("get persistentvolumeclaims cifar10-output\n.*create --dry-run=server", calls)
    kinds = [item["kind"] for item in json.loads((tmp_path / "given").read_text())["items"]]
    assert kinds == ["NetworkPolicy", "Service", "Job", "Job", "Job", "Secret"]


def test_a_kubectl_that_does_not_answer_ends_with_its_children(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_kubectl(tmp_path, monkeypatch, f"sleep 600 & echo $$ $! >{tmp_path}/pids; wait")
    with pytest.raises(HostError, match="kubectl: no answer within 1 s"):
        Kubectl(None, None)("create", timeout_secs=1.0)
    for pid in (tmp_path / "pids").read_text().split():
        wait_for(partial(has_ended, pid), f"the end of {pid}")


def test_a_child_that_holds_the_streams_does_not_hold_up_the_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_kubectl(tmp_path, monkeypatch, "sleep 3 &\necho yes")
    assert Kubectl(None, None)("get", timeout_secs=1.0) == "yes\n"
