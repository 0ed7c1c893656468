"""The TFJob that a description becomes, its hooks and checks, and calls of kubectl."""

import dataclasses
import io
import json
import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest
import yaml

from launch.backends.kubernetes import folders, hold, manifests
from launch.backends.kubernetes.kubectl import Kubectl, connect
from launch.backends.kubernetes.objects import JOBS, TFJOB, Form, choose_form
from launch.backends.kubernetes.run import run
from launch.backends.kubernetes.settings import KubernetesSettings, settings_of
from launch.backends.registry import KINDS, backend_named
from launch.cluster import show
from launch.cluster.cluster_file import read_cluster
from launch.cluster.host_list import on_chosen_hosts
from launch.cluster.model import Cluster
from launch.cluster.tasks import make_job
from launch.errors import HostError, LaunchError
from launch.record.outcome import Cause, Outcome
from launch.record.run_folder import RunFolder
from launch.screen.display import Display
from tests.launch.kube_schema import check_object, check_operator_rules, check_pod_security
from tests.launch.launcher import has_ended, signals_once, wait_for

FULL = """\
backend: kubernetes
tasks: {chief: 1, worker: 3, ps: 2, evaluator: 1}
gpus_per_task: 2
ports: 3000
environment: {OMP_NUM_THREADS: 2}
pass_environment: [API_TOKEN]
limits: {stop_secs: 90}
kubernetes:
  image: registry.example:5000/vision/cifar10:3
  image_pull_policy: Always
  image_pull_secrets: [registry-key]
  context: lab
  namespace: vision
  name: resnet
  data: nfs.example:/records
  output: results
  cpu: 4
  memory: 8Gi
  ps_cpu: 500m
  ps_memory: 2Gi
  node_selector: {pool: gpus, kubernetes.io/arch: amd64}
  tolerations: ["nvidia.com/gpu:NoSchedule", "team=vision:NoExecute"]
  ttl_secs: 600
  deadline_secs: 7200
"""


def read(folder: Path, text: str) -> Cluster:
    path = folder / "lab.yaml"
    path.write_text(text)
    return read_cluster(str(path), KINDS)


def small(**settings: Any) -> Cluster:
    """A master, a worker and a ps."""
    hosts = on_chosen_hosts(KINDS["kubernetes"], {"master": 1, "worker": 1, "ps": 1}).hosts
    return Cluster(
        hosts, backend="kubernetes", settings={"kubernetes": KubernetesSettings(**settings)}
    )


def tfjob(cluster: Cluster, *arguments: str, name: str = "cifar10") -> dict[str, Any]:
    return manifests.tfjob(make_job(cluster, arguments), name)


def replicas(job: dict[str, Any]) -> dict[str, Any]:
    return dict(job["spec"]["tfReplicaSpecs"])


def pod(job: dict[str, Any], role: str) -> dict[str, Any]:
    return dict(replicas(job)[role]["template"]["spec"])


def container(job: dict[str, Any], role: str) -> dict[str, Any]:
    return dict(pod(job, role)["containers"][0])


def test_everything_can_be_said(tmp_path: Path) -> None:
    assert settings_of(read(tmp_path, FULL)) == KubernetesSettings(
        image="registry.example:5000/vision/cifar10:3",
        image_pull_policy="Always",
        image_pull_secrets=("registry-key",),
        context="lab",
        namespace="vision",
        name="resnet",
        data="nfs.example:/records",
        output="results",
        cpu="4",
        memory="8Gi",
        ps_cpu="500m",
        ps_memory="2Gi",
        node_selector=(("pool", "gpus"), ("kubernetes.io/arch", "amd64")),
        tolerations=("nvidia.com/gpu:NoSchedule", "team=vision:NoExecute"),
        ttl_secs=600,
        deadline_secs=7200,
    )


@pytest.mark.parametrize(
    ("line", "error"),
    [
        ("image: 'a b'", "image must be an image, such as registry/cifar10:3, got 'a b'"),
        ("context: --kubeconfig=x", "context must be the name of a context"),
        ("name: 1st", "name must be at most 30 small letters"),
        ("data: ../up", "data must be a persistentVolumeClaim"),
        ("memory: 8 GB", "memory must be an amount of memory, such as 8Gi, got '8 GB'"),
        ("tolerations: [gpu]", "tolerations must be a taint as KEY:EFFECT"),
        ("tolerations: [gpu:Never]", "tolerations must be a taint as KEY:EFFECT"),
    ],
)
def test_mistakes_are_refused_with_their_line(tmp_path: Path, line: str, error: str) -> None:
    text = f"backend: kubernetes\ntasks: {{master: 1}}\nkubernetes:\n  {line}\n"
    with pytest.raises(LaunchError) as raised:
        read(tmp_path, text)
    assert f"lab.yaml:4: {error}" in str(raised.value)


def test_kubernetes_and_the_training_operator_would_take_it(tmp_path: Path) -> None:
    for cluster in (small(), read(tmp_path, FULL)):
        job = make_job(cluster, ["--train-batch-size=16"])
        secret = manifests.secret(job, "cifar10", {"API_TOKEN": "x"})
        for one in (*manifests.planned(job), secret):
            assert check_object(one) == []
        assert check_operator_rules(tfjob(cluster)) == []


def test_kubernetes_itself_would_take_jobs(tmp_path: Path) -> None:
    full = read(tmp_path, FULL + "  operator: none\n")
    for cluster in (small(operator="none"), dataclasses.replace(full, restarts=3)):
        job = make_job(cluster, ["--train-batch-size=16"])
        policy, service, *jobs = manifests.planned(job)
        assert policy["kind"] == "NetworkPolicy"
        assert len(jobs) == len(job.tasks)
        for one in (policy, service, *jobs):
            assert check_object(one) == []


def test_a_task_without_operator_is_a_job_that_restarts_nothing_in_the_same_pod() -> None:
    cluster = small(operator="none", output="nas:/results")
    of_tfjob = pod(tfjob(cluster, "--x"), "Worker")
    found = manifests.task_jobs(make_job(cluster, ["--x"]), "cifar10")
    assert list(found) == ["master/0", "worker/0", "ps/0"]
    worker = found["worker/0"]
    assert worker["metadata"]["name"] == "cifar10-worker-0"
    template = worker["spec"].pop("template")
    assert worker["spec"] == {
        "completions": 1,
        "backoffLimit": 0,
        "ttlSecondsAfterFinished": 86_400,
        "activeDeadlineSeconds": 604_860,  # the pod's own deadline names itself before
    }
    own = template["spec"]
    names = {key: own.pop(key) for key in ("restartPolicy", "hostname", "subdomain")}
    assert names == {"restartPolicy": "Never", "hostname": "worker-0", "subdomain": "cifar10"}
    variable = own["containers"][0]["env"].pop()
    assert own == of_tfjob
    assert variable["name"] == "TF_CONFIG"
    assert json.loads(variable["value"]) == {
        "cluster": {
            "master": ["master-0.cifar10:2222"],
            "worker": ["worker-0.cifar10:2222"],
            "ps": ["ps-0.cifar10:2223"],
        },
        "task": {"type": "worker", "index": 0},
        "environment": "cloud",
    }


def test_a_service_gives_the_pods_of_jobs_their_names() -> None:
    job = make_job(small(operator="none"))
    service = manifests.service(job, "cifar10")
    assert service["metadata"]["name"] == "cifar10"
    assert service["spec"]["clusterIP"] == "None"
    for one in manifests.task_jobs(job, "cifar10").values():
        labels = one["spec"]["template"]["metadata"]["labels"]
        assert service["spec"]["selector"].items() <= labels.items()


def test_the_longest_names_are_short_enough() -> None:
    hosts = on_chosen_hosts(KINDS["kubernetes"], {"chief": 1, "worker": 1000, "evaluator": 1}).hosts
    cluster = Cluster(hosts, backend="kubernetes")
    name = f"{'a' * 30}-20260101-000000-ffff"
    assert check_operator_rules(tfjob(cluster, name=name)) == []
    jobs = manifests.task_jobs(make_job(cluster), name).values()
    assert max(len(one["metadata"]["name"]) for one in jobs) <= 63  # as a label's value


def test_pods_are_as_restricted_as_they_can_be(tmp_path: Path) -> None:
    job = tfjob(small())
    for role in replicas(job):
        assert check_pod_security(pod(job, role)) is None
        assert pod(job, role)["automountServiceAccountToken"] is False
        assert container(job, role)["securityContext"]["readOnlyRootFilesystem"] is True
        writable = {m["mountPath"] for m in container(job, role)["volumeMounts"]
                    if not m.get("readOnly")}  # fmt: skip
        assert writable == ({"/tmp"} if role == "PS" else {"/tmp", "/data/output"})


def test_the_security_of_a_pod_is_literally_this() -> None:
    found = pod(tfjob(small()), "Worker")
    assert found["securityContext"] == {
        "runAsNonRoot": True,
        "runAsUser": 1000,
        "runAsGroup": 1000,
        "fsGroup": 1000,
        "fsGroupChangePolicy": "OnRootMismatch",
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    assert found["containers"][0]["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "privileged": False,
        "readOnlyRootFilesystem": True,
    }
    assert {"name": "tmp", "emptyDir": {"sizeLimit": "1Gi"}} in found["volumes"]


def test_a_pod_has_limits_though_the_settings_name_none() -> None:
    job = tfjob(small())
    trainer, ps = {"cpu": "2", "memory": "8Gi"}, {"cpu": "1", "memory": "2Gi"}
    for role in ("Master", "Worker"):
        assert container(job, role)["resources"] == {"requests": trainer, "limits": trainer}
    assert container(job, "PS")["resources"] == {"requests": ps, "limits": ps}


def test_each_role_runs_the_images_one_entry_point() -> None:
    job = tfjob(small(), "--train-batch-size=16", "a b")
    for role in replicas(job):
        assert container(job, role)["args"] == [
            "/data/cifar10_main.py",
            "--check-address=false",
            "--train-batch-size=16",
            "a b",
        ]
        assert "command" not in container(job, role)


def test_arguments_are_taken_as_they_are() -> None:
    """Kubernetes replaces $(X) and makes $$ a single one."""
    job = tfjob(small(), "$(HOME) $$x $y")
    assert container(job, "Master")["args"][2] == "$$(HOME) $$$$x $$y"


def test_without_restarts_the_first_failure_ends_the_job() -> None:
    """The operator itself would make pods anew for ever, once the launcher has gone."""
    job = tfjob(small())
    assert {one["restartPolicy"] for one in replicas(job).values()} == {"Never"}
    assert "backoffLimit" not in job["spec"]["runPolicy"]


def test_with_restarts_a_signal_makes_a_pod_anew_and_an_error_fails_the_job() -> None:
    job = tfjob(dataclasses.replace(small(), restarts=3))
    assert {one["restartPolicy"] for one in replicas(job).values()} == {"ExitCode"}
    assert job["spec"]["runPolicy"]["backoffLimit"] == 3
    assert check_object(job) == check_operator_rules(job) == []


def test_a_job_and_each_of_its_pods_end_at_the_deadline(tmp_path: Path) -> None:
    for cluster, secs in ((small(), 604_800), (read(tmp_path, FULL), 7200)):
        job = tfjob(cluster)
        assert job["spec"]["runPolicy"]["activeDeadlineSeconds"] == secs
        for role in replicas(job):
            assert pod(job, role)["activeDeadlineSeconds"] == secs
    job = tfjob(small(deadline_secs=None))
    assert "activeDeadlineSeconds" not in {**job["spec"]["runPolicy"], **pod(job, "PS")}


def test_what_runs_on_after_the_end_is_cleaned_up_but_an_evaluator(tmp_path: Path) -> None:
    assert tfjob(small())["spec"]["runPolicy"] == {
        "cleanPodPolicy": "Running",
        "ttlSecondsAfterFinished": 86_400,
        "activeDeadlineSeconds": 604_800,
    }
    assert tfjob(read(tmp_path, FULL))["spec"]["runPolicy"]["cleanPodPolicy"] == "None"


def test_the_folders_of_a_trainer_are_checked_by_its_own_user_in_its_own_image() -> None:
    job = tfjob(small(output="nfs.example:/results"), "--output-dir=output/run1")
    assert "initContainers" not in pod(job, "PS")
    for role in ("Master", "Worker"):
        (check,) = pod(job, role)["initContainers"]
        assert check["image"] == container(job, role)["image"]
        assert check["securityContext"] == container(job, role)["securityContext"]
        assert "command" not in check  # the image's entry point is Python
        assert check["args"][2:] == [
            "read", "cifar10-data", "/data/data", "/data/data",
            "write", "nfs.example:/results", "/data/output", "/data/output/run1",
        ]  # fmt: skip
        assert check["volumeMounts"] == container(job, role)["volumeMounts"]


def test_trainers_get_gpus_and_ps_none(tmp_path: Path) -> None:
    job = tfjob(read(tmp_path, FULL))
    assert container(job, "Worker")["resources"] == {
        "requests": {"cpu": "4", "memory": "8Gi", "nvidia.com/gpu": "2"},
        "limits": {"cpu": "4", "memory": "8Gi", "nvidia.com/gpu": "2"},
    }
    assert container(job, "PS")["resources"]["limits"] == {"cpu": "500m", "memory": "2Gi"}
    hidden = {"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"}
    assert hidden in container(job, "PS")["env"]
    assert hidden not in container(job, "Worker")["env"]


@pytest.mark.parametrize(
    ("place", "volume"),
    [
        ("records", {"persistentVolumeClaim": {"claimName": "records", "readOnly": True}}),
        ("/records", {"hostPath": {"path": "/records", "type": "Directory"}}),
        ("nas:/r", {"nfs": {"server": "nas", "path": "/r", "readOnly": True}}),
    ],
)
def test_the_records_are_a_claim_a_folder_or_nfs(place: str, volume: dict[str, Any]) -> None:
    job = tfjob(small(data=place))
    assert {"name": "data", **volume} in pod(job, "Worker")["volumes"]
    mount = {"name": "data", "mountPath": "/data/data", "readOnly": True}
    assert mount in container(job, "Worker")["volumeMounts"]
    assert [one["name"] for one in pod(job, "PS")["volumes"]] == ["tmp"]


def test_nodes_are_chosen(tmp_path: Path) -> None:
    chief = pod(tfjob(read(tmp_path, FULL)), "Chief")
    assert chief["nodeSelector"] == {"pool": "gpus", "kubernetes.io/arch": "amd64"}
    assert chief["tolerations"] == [
        {"key": "nvidia.com/gpu", "effect": "NoSchedule", "operator": "Exists"},
        {"key": "team", "effect": "NoExecute", "operator": "Equal", "value": "vision"},
    ]
    assert chief["imagePullSecrets"] == [{"name": "registry-key"}]


def test_only_the_jobs_own_pods_reach_its_ports(tmp_path: Path) -> None:
    policy, job = manifests.planned(make_job(read(tmp_path, FULL)))
    own = {"matchLabels": {"app.kubernetes.io/instance": "resnet"}}
    assert policy["metadata"]["namespace"] == job["metadata"]["namespace"] == "vision"
    assert policy["spec"] == {
        "podSelector": own,
        "policyTypes": ["Ingress"],
        "ingress": [
            {
                "from": [{"podSelector": own}],
                "ports": [{"protocol": "TCP", "port": 3000}, {"protocol": "TCP", "port": 3001}],
            }
        ],
    }
    for role, replica in replicas(job).items():
        labels = replica["template"]["metadata"]["labels"]
        assert labels["app.kubernetes.io/instance"] == "resnet"
        expected = 3001 if role == "PS" else 3000
        assert role == "Evaluator" or container(job, role)["ports"][0]["containerPort"] == expected


def test_the_master_has_time_to_save_and_the_ps_wait_for_it(tmp_path: Path) -> None:
    job = tfjob(read(tmp_path, FULL))
    secs = {role: pod(job, role)["terminationGracePeriodSeconds"] for role in replicas(job)}
    assert secs == {"Chief": 90, "Worker": 95, "PS": 185, "Evaluator": 90}
    assert container(job, "PS")["lifecycle"]["preStop"]["exec"]["command"][-1] == "95"
    assert "lifecycle" not in container(job, "Chief")


@pytest.mark.parametrize(
    ("operator", "known", "form"),
    [
        ("tfjob", "", TFJOB),
        ("none", "tfjobs.kubeflow.org", JOBS),
        ("auto", "mpijobs.kubeflow.org\ntfjobs.kubeflow.org", TFJOB),
        ("auto", "mpijobs.kubeflow.org", JOBS),
    ],
)
def test_the_cluster_is_asked_for_tfjobs_if_need_be(operator: str, known: str, form: Form) -> None:
    def kubectl(*words: str) -> str:
        assert operator == "auto"
        assert words[0] == "api-resources"
        return known

    assert choose_form(cast(Kubectl, kubectl), operator) is form


def test_the_plan_says_what_auto_means() -> None:
    backend = backend_named("kubernetes")
    assert "`operator: auto`" in backend.plan_text(make_job(small()))
    for operator, kinds in (("tfjob", ["TFJob"]), ("none", ["Service", *["Job"] * 3])):
        text = backend.plan_text(make_job(small(operator=operator)))
        assert "`operator: auto`" not in text
        assert [one["kind"] for one in yaml.safe_load_all(text)] == ["NetworkPolicy", *kinds]


def test_variables_are_in_the_secret_alone(tmp_path: Path) -> None:
    cluster = read(tmp_path, FULL.replace("OMP_NUM_THREADS: 2", "OMP_NUM_THREADS: hidden"))
    job = make_job(cluster)
    backend = backend_named("kubernetes")
    documents = show.as_documents(backend.plan(job))
    for shown in (backend.plan_text(job), backend.plan_json(job), documents):
        assert "hidden" not in shown
        assert "OMP_NUM_THREADS" in shown
        assert "API_TOKEN" in shown
    expected = [{"secretRef": {"name": "resnet-environment"}}]
    assert container(tfjob(cluster, name="resnet"), "PS")["envFrom"] == expected
    assert "envFrom" not in container(tfjob(small()), "PS")


def test_the_plan_is_what_kubectl_applies(tmp_path: Path) -> None:
    job = make_job(read(tmp_path, FULL), ["--train-batch-size=16"])
    backend = backend_named("kubernetes")
    for text in (backend.plan_text(job), show.as_documents(backend.plan(job))):
        assert list(yaml.safe_load_all(text)) == manifests.planned(job)
    assert json.loads(backend.plan_json(job))["manifests"] == manifests.planned(job)
    assert backend.plan_text(job).startswith(
        "# 1 chief, 3 workers, 2 ps, 1 evaluator (kubernetes)\n"
    )


# The ps's preStop hook, as it stands in the manifest.


def start_hook(port: int, secs: float) -> "subprocess.Popen[bytes]":
    command = container(tfjob(small()), "PS")["lifecycle"]["preStop"]["exec"]["command"]
    config = {"cluster": {"ps": [f"x.ns.svc:{port}"]}, "task": {"type": "ps", "index": 0}}
    words = [sys.executable, *command[1:-1], str(secs)]
    return subprocess.Popen(words, env={**os.environ, "TF_CONFIG": json.dumps(config)})


def test_a_ps_ends_when_the_last_trainer_has_gone_and_does_not_wait_for_ever() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)):
            accepted, _ = server.accept()
            patient, other = start_hook(port, 60), start_hook(port, 1)
            time.sleep(hold.FIRST_SECS + 0.2)
            assert patient.poll() is None
            assert other.wait(60) == 0
        accepted.close()
        assert patient.wait(60) == 0


# What kubectl complains of.


@pytest.mark.parametrize(
    ("errors", "words"),
    [
        ('error: no matches for kind "TFJob"', "the cluster does not support TFJob: install Kube"),
        ("error: context was not found for it", "the kubeconfig has no context lab; see: kubectl"),
        ('namespaces "vision" not found', "there is no namespace vision; make it: kubectl create"),
        ("Error from server (Forbidden): x is forbidden: no", "kubectl: Error from server (Forbi"),
        ("", "kubectl: it failed without an error message"),
    ],
)
def test_what_kubectl_complains_of_is_said_in_one_line(errors: str, words: str) -> None:
    explained = Kubectl("lab", "vision").explain(errors)
    assert words in explained
    assert "\n" not in explained


def test_a_missing_kubectl_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(LaunchError, match="kubectl: No such file or directory; install it"):
        Kubectl(None, None)("get", "pods")


HUNG = """#!/bin/sh
echo "$@" >> {place}/calls
case "$*" in
*"config view"*) echo '{{"contexts": [{{"name": "lab", "context": {{}}}}]}}' ;;
*api-resources*) echo tfjobs.kubeflow.org ;;
*create*) sleep 600 & echo $$ $! > {place}/part; mv {place}/part {place}/pids; wait ;;
esac
"""


def hung_kubectl(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "kubectl").write_text(HUNG.format(place=folder))
    (folder / "kubectl").chmod(0o755)
    monkeypatch.setenv("PATH", str(folder), prepend=":")


def assert_ended(pids: Path) -> None:
    for pid in pids.read_text().split():
        wait_for(partial(has_ended, pid), f"the end of {pid}")


def test_a_kubectl_that_does_not_answer_ends_with_its_children(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hung_kubectl(tmp_path, monkeypatch)
    with pytest.raises(HostError, match="kubectl create: no answer within 1 s"):
        Kubectl(None, None)("create", timeout_secs=1.0)
    assert_ended(tmp_path / "pids")


def test_a_signal_ends_a_create_that_hangs_and_what_it_may_have_created(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hung_kubectl(tmp_path, monkeypatch)
    job = make_job(small())
    folder = RunFolder.create(tmp_path / "state", job)
    screen, began = io.StringIO(), time.monotonic()
    display = Display(screen, live=False)
    with signals_once(
        (tmp_path / "pids").exists, signal.SIGHUP, signal.SIGTERM
    ):  # the first does not
        outcome = run(job, folder, display)
    display.close()
    assert time.monotonic() - began < 20
    assert outcome == Outcome(143, "stopped before the start", cause=Cause.USER)
    assert folder.status()["exit_code"] == 143
    assert screen.getvalue().endswith("deleting what kubectl may have created\n")
    assert_ended(tmp_path / "pids")
    calls = (tmp_path / "calls").read_text().splitlines()
    assert sum(" create " in call for call in calls) == 1
    assert sum(" delete " in call for call in calls) == 1


def test_a_kubeconfig_without_a_context_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tool = tmp_path / "kubectl"
    tool.write_text("#!/bin/sh\necho '{}'\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    words = "^kubectl config view names no context; see: kubectl config get-contexts$"
    with pytest.raises(LaunchError, match=words):
        connect(KubernetesSettings())


IDS = 65534
OWN = (os.getuid(), os.getgid())
ROOT = pytest.mark.skipif(os.getuid() != 0, reason="only root may take another user's id")


@pytest.fixture
def volume() -> Iterator[Path]:
    """A folder that every user can reach, unlike those of pytest."""
    path = Path(tempfile.mkdtemp(prefix="launch-volume-"))
    path.chmod(0o755)
    yield path
    shutil.rmtree(path)


def check(*words: object) -> tuple[int, str]:
    """Runs the script as another user, who may not be able to start this Python."""
    become = f"import os, sys, tempfile; os.setgroups([]); os.setgid({IDS}); os.setuid({IDS})\n"
    source = become + Path(folders.__file__).read_text()
    done = subprocess.run(
        [sys.executable, "-S", "-c", source, *map(str, words)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stderr == ""
    return done.returncode, done.stdout


@ROOT
@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("nfs.example:/results", "on the NFS server nfs.example: chown -R 65534:65534 /results"),
        ("/results", "on each node: chown -R 65534:65534 /results"),
        ("cifar10-output", "its storage does not apply fsGroup; once, in a pod that runs as root: "
         "chown -R 65534:65534 its root"),
    ],
)  # fmt: skip
def test_an_output_folder_that_is_not_writable_is_named_with_the_way_out(
    volume: Path, name: str, advice: str
) -> None:
    assert check("write", name, volume, volume) == (
        2,
        f"{volume} (volume {name}) is not writable for uid 65534, gid 65534: Permission denied; "
        f"{volume} belongs to 0:0, mode 0755; {advice}\n",
    )


@ROOT
def test_records_that_are_not_readable_are_named_with_the_way_out(volume: Path) -> None:
    record = volume / "train.tfrecords"
    record.write_bytes(b"x")
    record.chmod(0o600)
    code, said = check("read", "nfs.example:/records", volume, volume)
    assert code == 2
    assert said.startswith(f"{record} (volume nfs.example:/records) is not readable for uid 65534")
    assert said.endswith("on the NFS server nfs.example: chmod -R a+rX /records\n")
    record.chmod(0o644)
    assert check("read", "nfs.example:/records", volume, volume) == (0, "")


@ROOT
def test_a_folder_that_training_will_make_counts_by_the_one_above_it(volume: Path) -> None:
    run = volume / "own" / "run1"
    assert check("write", "claim", volume, run)[0] == 2
    (volume / "own").mkdir(mode=0o777)
    (volume / "own").chmod(0o777)
    assert check("write", "claim", volume, run) == (0, "")
    assert not run.exists()


@ROOT
def test_a_folder_that_cannot_even_be_looked_at_is_named(volume: Path) -> None:
    (volume / "hidden" / "data").mkdir(parents=True)
    (volume / "hidden").chmod(0o700)
    place = volume / "hidden" / "data"
    words = "is not readable for uid 65534, gid 65534: Permission denied\n"
    assert check("read", "records", place, place) == (2, f"{place} (volume records) {words}")


def test_a_check_leaves_nothing_in_the_folder(volume: Path) -> None:
    if OWN[0] != 0:
        volume.chmod(stat.S_IRWXU)
    assert folders.main(["write", "results", str(volume), str(volume)]) == 0
    assert list(volume.iterdir()) == []
