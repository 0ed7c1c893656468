"""Jobs on a real Kubernetes of one node, which testbeds/kubernetes.sh starts."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from launch.backends.kubernetes import manifests
from launch.backends.registry import BACKENDS
from launch.cluster.cluster_file import read_cluster
from launch.cluster.tasks import make_job
from tests.cifar10 import program
from tests.launch.launcher import ROOT, Launcher, interrupt, processes_naming, read_until, wait_for

pytestmark = pytest.mark.system

BED = ROOT / "testbeds" / "kubernetes.sh"
FILE = """\
backend: kubernetes
tasks: {{master: 1, worker: 1, ps: 1}}
restarts: 1
program: output/own.py
environment: {{PYTHONPATH: /data}}
limits: {{stop_secs: 20}}
kubernetes: {{image_pull_policy: Never, data: {0}/data, output: {0}/output, cpu: 0.1, ps_cpu: 0.1,
  memory: 1500Mi, ps_memory: 900Mi}}
"""
TRAINING = ("--model", "own", "--train-batch-size", "32", "--output-dir")


class Bed:
    """The cluster: its folder, and kubectl as a user who may do everything."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.env = {"PATH": f"{folder}:{os.environ['PATH']}"}

    def kubectl(self, *words: str, given: str = "", user: str = "admin") -> str:
        env = {**os.environ, **self.env, "KUBECONFIG": str(self.folder / user)}
        done = subprocess.run(
            ["kubectl", *words], env=env, input=given, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def left(self) -> list[str]:
        return self.kubectl("get", "services,jobs,secrets,networkpolicies,pods", "-oname", "-l",
                            "app.kubernetes.io/managed-by=cifar10-launch").split()  # fmt: skip


@pytest.fixture(scope="module")
def bed() -> Iterator[Bed]:
    with tempfile.TemporaryDirectory(prefix="kubernetes-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        process = subprocess.Popen(
            ["bash", str(BED), "run", name], stderr=subprocess.PIPE, text=True
        )
        assert process.stderr is not None
        try:
            is_up = folder / "ready"
            wait_for(lambda: is_up.exists() or process.poll() is not None, "the cluster")
            if process.returncode == 2:
                pytest.skip(process.stderr.read().strip())
            made = [sys.executable, "-m", "data_prep", "--source=synthetic", "--synthetic-size=500"]
            subprocess.run([*made, f"--out={folder}/data"], cwd=ROOT, check=True)
            program.write_own(folder / "output")
            (folder / "output").chmod(0o777)
            found = Bed(folder)
            for claim in ("cifar10-data", "cifar10-output"):
                spec = {"accessModes": ["ReadWriteMany"],
                        "resources": {"requests": {"storage": "1Gi"}}}  # fmt: skip
                of_claim = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "spec": spec}
                given = json.dumps({**of_claim, "metadata": {"name": claim}})
                found.kubectl("create", "-f-", given=given)
            yield found
        finally:
            process.terminate()
            process.communicate(timeout=60)


@pytest.fixture
def launcher(bed: Bed, tmp_path: Path) -> Iterator[Launcher]:
    """A launcher of the user `lab`, who has the documented Role and no other right."""
    role = ROOT / "launch/backends/kubernetes/templates/role.yaml"  # as in docs/launch.md
    bed.kubectl("apply", "-f-", given=role.read_text())
    if "lab" not in bed.kubectl("get", "rolebindings", "-oname"):
        bed.kubectl("create", "rolebinding", "lab", "--role=cifar10-launch", "--user=lab")
    env = {**bed.env, "KUBECONFIG": str(bed.folder / "lab"), "HOME": str(tmp_path)}
    launcher = Launcher(tmp_path, env)
    yield launcher
    launcher.end()


def flags(bed: Bed) -> tuple[str, ...]:
    path = bed.folder / "lab.yaml"
    path.write_text(FILE.format(bed.folder))
    return ("--cluster", str(path))


def test_a_deleted_pod_costs_one_restart_and_a_left_job_is_followed_from_elsewhere(
    bed: Bed, launcher: Launcher
) -> None:
    """It trains to its end as a user with the documented Role, whatever is left after it."""
    words = ("--", *TRAINING, "/data/output/a", "--train-steps", "300")
    process = launcher.start_up(flags(bed), *words)
    launcher.wait_for_log("worker/0", "images/s")
    bed.kubectl("delete", "pod", "-l", f"{manifests.TYPE}=worker", "--wait=false")
    read_until(process, "restart 1 of 1")
    launcher.kill(process)
    run_id = launcher.run_id()
    assert "to end it: stop" in launcher.verb("status")
    launcher.state = launcher.state.with_name("elsewhere")
    output = launcher.verb("attach", "--run", run_id)
    assert output.splitlines()[-1] == "master/0 is done"
    assert "eval accuracy" in output
    wait_for(lambda: not bed.left(), "end of the objects")


def test_stop_now_waits_until_kubernetes_says_that_the_pods_are_gone(
    bed: Bed, launcher: Launcher
) -> None:
    words = ("--", *TRAINING, "/data/output/b", "--train-steps", "100000")
    launcher.up(flags(bed), "--detach", *words)
    launcher.wait_for_log("worker/0", "images/s")
    launcher.verb("stop", "--now")
    assert [name for name in bed.left() if name.startswith("pod")] == []
    assert "does not answer" not in launcher.log("master/0")
    wait_for(lambda: not bed.left(), "end of the objects")
    assert "nothing was left" in launcher.verb("clean", "--run", launcher.run_id())


def test_a_quota_and_a_claim_that_is_missing_are_why_a_job_waits(
    bed: Bed, launcher: Launcher
) -> None:
    bed.kubectl("create", "quota", "none", "--hard=pods=0")
    try:
        words = ("--set=kubernetes.data=nowhere", "--", *TRAINING, "/data/output/c")
        process = launcher.start_up(flags(bed), *words)
        read_until(process, "no pod can be created for master/0, worker/0, ps/0: exceeded quota")
        bed.kubectl("delete", "quota", "none")
        read_until(process, 'persistentvolumeclaim "nowhere" not found')
        interrupt(process)
    finally:
        bed.kubectl("delete", "quota", "none", "--ignore-not-found")
    wait_for(lambda: not bed.left(), "end of the objects")


def test_a_failed_task_an_evicted_pod_and_a_deleted_job_are_told_apart(
    bed: Bed, launcher: Launcher
) -> None:
    """The second job runs beside the first one, and has a name as long as any may be."""
    words = ("--", *TRAINING, "/data/output/d", "--train-steps", "100000")
    evicted = launcher.start_up(flags(bed), "--set=restarts=0", *words)
    launcher.wait_for_log("worker/0", "images/s")
    pod = bed.kubectl("get", "pods", "-oname", "-l", f"{manifests.TYPE}=worker").strip()[4:]
    failed = launcher.up(flags(bed), f"--name={'n' * 30}", "--", *TRAINING, "/none", exit_code=2)
    assert "master/0 on node-a failed: exit code 2" in failed
    eviction = {"apiVersion": "policy/v1beta1", "kind": "Eviction", "metadata": {"name": pod}}
    path = f"/api/v1/namespaces/lab/pods/{pod}/eviction"
    bed.kubectl("create", "--raw", path, "-f-", given=json.dumps(eviction))
    output, _ = evicted.communicate(timeout=200)
    assert "its pod was deleted" in output
    wait_for(lambda: not bed.left(), "end of the objects")

    deleted = launcher.start_up(flags(bed), *words)
    launcher.wait_for_log("worker/0", "images/s")
    bed.kubectl("delete", "job", "-l", f"{manifests.TYPE}=worker", "--wait=false")
    read_until(deleted, "restart 1 of 1")
    bed.kubectl("delete", "service", "--all")
    output, _ = deleted.communicate(timeout=200)
    assert "the job was deleted by someone else" in output
    wait_for(lambda: not bed.left(), "end of the objects")


def test_a_job_outlives_an_api_server_that_is_away(bed: Bed, launcher: Launcher) -> None:
    """The server stands still for longer than a call waits; the job trains on, and ends."""
    words = ("--", *TRAINING, "/data/output/e", "--train-steps", "600")
    process = launcher.start_up(flags(bed), *words)
    launcher.wait_for_log("worker/0", "images/s")
    (server,) = processes_naming("kube-apiserver --etcd-servers")
    os.kill(server, signal.SIGSTOP)
    try:
        read_until(process, "the job goes on, trying again")
    finally:
        os.kill(server, signal.SIGCONT)
    output, _ = process.communicate(timeout=200)
    assert "trying again" not in output
    assert "still running: killed" not in output
    assert output.splitlines()[-1] == "master/0 is done"
    wait_for(lambda: not bed.left(), "end of the objects")


def test_a_job_waits_for_a_node_that_is_not_ready_and_trains_on_with_one_restart(
    bed: Bed, launcher: Launcher
) -> None:
    """While no node is ready, Kubernetes deletes no pods; so there is another one, without room."""
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-b"}}
    ready = {"type": "Ready", "status": "True"}

    def is_deleted() -> str:
        beat = {**ready, "lastHeartbeatTime": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())}
        given = json.dumps({**node, "status": {"conditions": [beat]}})
        bed.kubectl("replace", "--raw", "/api/v1/nodes/node-b/status", "-f-", given=given)
        return bed.kubectl("get", "pods", "-ojsonpath={..deletionTimestamp}")

    words = ("--", *TRAINING, "/data/output/f", "--train-steps", "100000")
    process = launcher.start_up(flags(bed), *words)
    launcher.wait_for_log("worker/0", "images/s")
    bed.kubectl("create", "-f-", given=json.dumps({**node, "spec": {"unschedulable": True}}))
    (kubelet,) = processes_naming("kubelet --config")
    os.kill(kubelet, signal.SIGSTOP)
    try:
        wait_for(is_deleted, "deletion of the pods")
        read_until(process, "wait: Unschedulable: 0/2 nodes are available: 1 node(s) had taint")
    finally:
        os.kill(kubelet, signal.SIGCONT)
        bed.kubectl("delete", "node", "node-b")
    read_until(process, "continuing at step")  # a second restart would have ended the job
    assert "Unschedulable" not in interrupt(process)
    wait_for(lambda: not bed.left(), "end of the objects")


def test_the_api_server_takes_every_manifest_and_check_says_so(
    bed: Bed, launcher: Launcher
) -> None:
    words: tuple[str, ...] = ("--on", "kubernetes", "--workers", "1", "--ps", "1")
    for key in ("restarts=3", "kubernetes.labels.queue=lab", "environment.A=b"):
        words += ("--set", key)
    output = launcher.verb_on(words, "check")
    assert "namespace lab of testbed: it would take all 6 objects" in output
    path = bed.folder / "full.yaml"
    path.write_text(
        "backend: kubernetes\ntasks: {chief: 1, worker: 2, ps: 2, evaluator: 1}\n"
        "gpus_per_task: 1\nkubernetes: {data: 'nas:/r', user: off, annotations: {a: b}}\n"
    )
    job = make_job(read_cluster(str(path), BACKENDS), ["--train-steps=1", "$x"])
    documents = [*manifests.planned(job), manifests.secret(job, "cifar10", {"A": "b"})]
    for document in documents:
        bed.kubectl("apply", "--dry-run=server", "-f-", given=yaml.safe_dump(document))
