"""Jobs through the real kubectl, on a cluster whose API is a stand-in."""

import json
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from cifar10.output.checkpoints import latest_step
from testbeds.process_list import environment_of
from tests.cifar10 import program
from tests.launch.kube_api import Cluster
from tests.launch.launcher import ROOT, Launcher, interrupt, processes_naming, read_until, wait_for

pytestmark = pytest.mark.system

ON = ("--on", "kubernetes", "--workers", "1")
FILE = "backend: kubernetes\ntasks: {master: 1, worker: 1, ps: 1}\n"


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    (tmp_path / "work").mkdir()
    with Cluster(tmp_path, tmp_path / "work") as running:
        yield running


@pytest.fixture
def launcher(cluster: Cluster, tmp_path: Path) -> Iterator[Launcher]:
    launcher = Launcher(tmp_path, {"KUBECONFIG": str(cluster.kubeconfig), "HOME": str(tmp_path)})
    yield launcher
    launcher.end()


def described(launcher: Launcher, text: str) -> tuple[str, ...]:
    """Writes a cluster file with master, worker, ps and the lines `text`; returns its flags."""
    path = launcher.workdir.parent / "lab.yaml"
    path.write_text(FILE + text)
    return ("--cluster", str(path))


def start(
    launcher: Launcher, *arguments: str, text: str = "", stop_secs: int = 8
) -> "subprocess.Popen[str]":
    """Starts an endless job and waits until it trains."""
    words = described(launcher, f"limits: {{stop_secs: {stop_secs}}}\n{text}")
    process = launcher.start_up(words, "--", "steps=100000", *arguments)
    launcher.wait_until_trains()
    return process


def kubectl(launcher: Launcher, *words: str, given: str = "") -> str:
    done = subprocess.run(
        ["kubectl", *words], env=launcher.env, input=given, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def kubectls(cluster: Cluster) -> list[str]:
    """Returns the command lines of the kubectl processes that talk to the cluster."""
    mark = f"KUBECONFIG={cluster.kubeconfig}"
    found = processes_naming("kubectl ")
    return [line for pid, line in found.items() if mark in environment_of(pid)]


def assert_nothing_left(cluster: Cluster, timeout_secs: float = 2) -> None:
    """Asserts that no object, container or kubectl is left, at the latest after some seconds."""
    wait_for(lambda: not cluster.left(), f"end of {cluster.left()}", timeout_secs)
    assert cluster.running() == []
    assert kubectls(cluster) == []


def test_a_job_runs_to_its_end(launcher: Launcher, cluster: Cluster) -> None:
    output = launcher.up(ON, "--", "steps=40", "print=here", "env=TF_CONFIG")
    name = f"cifar10-{launcher.run_id()}"
    assert f"job {name} in namespace vision of stand-in" in output
    assert "[master/0 node-a] epoch 0.1/1  step 40/40  loss 1.9  512 images/s" in output
    assert "[worker/0 node-a] epoch 0.1/1  step 1/40" in output
    assert output.splitlines()[-1] == "master/0 is done"
    for task in ("master-0", "worker-0", "ps-0"):
        assert "here\n" in launcher.log(task)
    (line,) = [line for line in output.splitlines() if line.startswith("[worker/0 node-a] TF_")]
    config = json.loads(line.partition("=")[2])
    assert config["task"] == {"type": "worker", "index": 0}
    assert sorted(config["cluster"]) == ["master", "ps", "worker"]
    posted = [manifest["kind"] for manifest in cluster.posted if manifest["kind"] != "Pod"]
    assert posted == ["Service", "NetworkPolicy", "Secret", "Job", "Job", "Job"]
    assert_nothing_left(cluster)


def test_ctrl_c_twice_ends_the_job_at_once(launcher: Launcher, cluster: Cluster) -> None:
    process = start(launcher, "deaf", stop_secs=60)
    process.send_signal(2)
    wait_for(lambda: not cluster.left("jobs"), "the deletion")
    began = time.monotonic()
    interrupt(process)
    assert time.monotonic() - began < 30
    assert process.returncode == 130
    assert_nothing_left(cluster)


def test_a_job_outlives_its_launcher_and_clean_ends_it(
    launcher: Launcher, cluster: Cluster
) -> None:
    process = start(launcher, "env=API_TOKEN", text="environment: {API_TOKEN: secret}\n")
    launcher.kill(process)
    time.sleep(1)
    assert kubectls(cluster) == []
    assert len(cluster.running()) == 3
    run_id = launcher.run_id()
    goes_on = f"continues without its launcher: job cifar10-{run_id}"
    for verb in ("status", "clean"):
        assert f"{goes_on}; to end it: stop --run {run_id}\n" in launcher.verb(verb)
    assert len(cluster.running()) == 3
    output = launcher.verb("clean", "--run", run_id)
    assert f"run {run_id}: service/cifar10-{run_id}: deleted\n" in output
    assert f"run {run_id}: pod/cifar10-{run_id}-worker-0-" in output
    assert_nothing_left(cluster)
    assert "nothing was left" in launcher.verb("clean", "--run", run_id)


def test_a_job_that_was_left_is_followed_from_elsewhere_with_its_restarts(
    launcher: Launcher, cluster: Cluster
) -> None:
    words = ("steps=100000", "worker/0:die=3", "worker/0:at=100")
    process = launcher.start_up(described(launcher, "restarts: 1\n"), "--", *words)
    read_until(process, "restart 1 of 1")
    wait_for(lambda: launcher.log("worker/0").count("step 1/") == 2, "second start of worker/0")
    launcher.kill(process)
    run_id = launcher.run_id()
    launcher.state = launcher.state.with_name("elsewhere")
    output = launcher.verb("attach", "--run", run_id, exit_code=3)
    assert "failed: exit code 3, after 1 restarts" in output
    assert_nothing_left(cluster)


def test_a_job_that_was_left_is_stopped_from_elsewhere(
    launcher: Launcher, cluster: Cluster
) -> None:
    launcher.kill(start(launcher))
    run_id = launcher.run_id()
    launcher.state = launcher.state.with_name("elsewhere")
    launcher.verb("stop", "--run", run_id)
    assert_nothing_left(cluster)
    assert "error: no run x in " in launcher.verb("status", "--run", "x", exit_code=2)


def test_all_goes_with_the_job(launcher: Launcher, cluster: Cluster) -> None:
    """The network policy and the Secret belong to the Service, so they are deleted with it."""
    process = start(launcher, text="environment: {API_TOKEN: secret}\n")
    assert len(cluster.left()) == 9
    kubectl(launcher, "delete", "service", "--all", "--wait=false")
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 1
    assert output.splitlines()[-1] == "exit code 1: the job was deleted by someone else"
    assert "[master/0 node-a] saved" in output
    assert_nothing_left(cluster)


def test_a_secret_is_in_the_secret_alone(launcher: Launcher, cluster: Cluster) -> None:
    def look(secret: str) -> list[int]:
        having = [found["kind"] for found in cluster.posted if secret in json.dumps(found)]
        assert having == ["Secret"]
        return cluster.running()  # containers need it

    file = described(launcher, "limits: {stop_secs: 8}\npass_environment: [API_TOKEN]\n")
    launcher.check_secret(file, "[worker/0 node-a]", look=look)
    assert_nothing_left(cluster)


def test_kubectl_applies_the_plan(launcher: Launcher, cluster: Cluster) -> None:
    shown = launcher.verb_on(ON, "plan", "--shell", "--", "steps=1")
    created = kubectl(launcher, "create", "--filename=-", given=shown)
    assert "job.batch/cifar10-master-0 created" in created
    wait_for(lambda: not cluster.running() and len(cluster.processes) == 3, "end of the job", 10)


def test_a_job_ends_at_its_deadline_without_its_launcher(
    launcher: Launcher, cluster: Cluster
) -> None:
    text = "restarts: 3\nkubernetes: {deadline_secs: 3}\nlimits: {stop_secs: 8}\n"
    process = launcher.start_up(described(launcher, text), "--", "steps=100000")
    wait_for(cluster.running, "a container")
    launcher.kill(process)
    wait_for(lambda: not cluster.running(), "the deadline")


def test_real_training_saves_when_its_job_is_deleted(
    launcher: Launcher, cluster: Cluster, tmp_path: Path
) -> None:
    """All tasks are asked to end at once, and the ps stays until the chief has saved."""
    cluster.workdir, output = ROOT, tmp_path / "output"
    folders = (
        f"--data-dir={program.make_records(tmp_path / 'data', 200)}",
        f"--output-dir={output}",
    )
    words = ("--model=own", "--train-steps=1000000", "--checkpoint-steps=1000000", *folders)
    text = f"program: {program.write_own(tmp_path)}\nenvironment: {{PYTHONPATH: {ROOT}}}\n"
    text += "limits: {stop_secs: 30}\n"
    process = launcher.start_up(described(launcher, text), "--", *words)
    launcher.wait_for_log("master/0", "images/s")
    interrupt(process)
    assert latest_step(str(output)) > 0  # no checkpoint is due before
    assert {container.process.returncode for container in cluster.processes.values()} == {143}
    assert_nothing_left(cluster)
