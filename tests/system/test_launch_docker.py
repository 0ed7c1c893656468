"""Jobs in containers, on a real Docker engine and on podman over ssh: no container is left behind.

Leftovers are looked for in the engines' lists and in this machine's process list, which also shows
the processes in containers and on nodes.
"""

import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from launch.agent.containers import Containers
from testbeds.nodes import Nodes
from tests.cifar10 import program
from tests.launch.launcher import (
    STAND_IN,
    Launcher,
    interrupt,
    processes_naming,
    processes_of,
    wait_for,
)
from tests.system.containers import BASE_IMAGE, Docker

pytestmark = [pytest.mark.system, pytest.mark.timeout(900)]  # the first test waits for images

STAND_IN_IMAGE = "localhost/stand-in"
LIMITS = "limits: {stop_secs: 30}\n"
# For tests of what happens at the end of a limit.
SHORT = "limits: {stop_secs: 3, lease_secs: 5}\n"
END_SECS = 90.0  # for what ends within some seconds on an idle machine

# The working directory is the shared folder, in which stand-ins find out that the job is done.
_STAND_IN_DOCKERFILE = f"""\
FROM {BASE_IMAGE}
ENV PYTHONUNBUFFERED=1
COPY cifar10_main.py /data/cifar10_main.py
WORKDIR /data/output
ENTRYPOINT ["python"]
"""


@pytest.fixture(scope="module")
def podman(docker: Docker, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The path of podman under the name docker, which has the stand-in's image."""
    context = tmp_path_factory.mktemp("stand-in")
    (context / "Dockerfile").write_text(_STAND_IN_DOCKERFILE)
    (context / "cifar10_main.py").write_bytes(STAND_IN.read_bytes())
    docker("build", "-t", STAND_IN_IMAGE, str(context))
    return docker.command


@pytest.fixture(scope="module")
def engine(podman: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The path of the client of a real Docker engine, which has the same image.

    It is of Debian's packages, unpacked without installing them, with storage and a socket of its
    own. It does not change the machine's network: its containers use the host's.
    """
    home = tmp_path_factory.mktemp("engine")
    home.chmod(0o755)  # apt-get downloads as another user

    def run(*words: "str | Path") -> None:
        subprocess.run(words, cwd=home, check=True, capture_output=True, timeout=300)

    run("apt-get", "download", "-q", "docker.io", "containerd")
    for package in home.glob("*.deb"):
        run("dpkg", "-x", package, "files")
    client, programs = home / "docker", home / "files" / "usr"
    words = f'DOCKER_HOST=unix://{home}/docker.sock exec {programs}/bin/docker "$@"'
    client.write_text(f"#!/bin/sh\n{words}\n")
    client.chmod(0o755)
    command = [
        f"{programs}/sbin/dockerd",
        f"--data-root={home}/data",
        f"--exec-root={home}/exec",
        f"--pidfile={home}/docker.pid",
        f"--host=unix://{home}/docker.sock",
        "--containerd-namespace=launch-tests",
        *("--bridge=none", "--iptables=false", "--ip6tables=false"),
        *("--ip-forward=false", "--ip-masq=false"),
    ]
    env = {**os.environ, "PATH": f"{programs}/bin:{programs}/sbin:{os.environ['PATH']}"}
    with (home / "log").open("wb") as log:
        dockerd = subprocess.Popen(
            command, env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT
        )

    def answers() -> bool:
        assert dockerd.poll() is None, (home / "log").read_text()
        return subprocess.run([client, "ps"], capture_output=True).returncode == 0

    wait_for(answers, f"Docker engine: {home}/log", 60)
    run(podman, "save", "-o", "stand-in.tar", STAND_IN_IMAGE)
    run(client, "load", "-i", "stand-in.tar")
    yield client
    dockerd.terminate()
    dockerd.wait(60)
    # dockerd leaves its network namespaces mounted, so the folder could not be removed.
    for mounted in (home / "exec" / "netns").glob("*"):
        run("umount", mounted)
    shutil.rmtree(home)


@dataclass(frozen=True)
class Lab:
    """The hosts and the container engine of a job.

    Attributes:
      engine: path of the client of the container engine.
      launcher: starts the launcher with the environment that reaches the hosts.
      hosts: lines below `hosts:` in the cluster file.
      second: name of the host of worker/0.
      tasks: number of tasks of a job.
    """

    engine: Path
    launcher: Launcher
    hosts: str
    second: str
    tasks: int

    def cluster(self, text: str = LIMITS, image: str = STAND_IN_IMAGE) -> tuple[str, ...]:
        """Writes a cluster file with a master, a worker and at least one ps; returns its flags."""
        workdir = self.launcher.workdir
        path = workdir.parent / "lab.yaml"
        path.write_text(
            f"backend: docker\nworkdir: {workdir}\nports: 2300\nhosts:\n{self.hosts}"
            f"docker: {{image: {image}, engine: {self.engine}}}\n{text}"
        )
        return ("--cluster", str(path))

    def start(
        self, *arguments: str, restarts: int = 0, limits: str = LIMITS
    ) -> "subprocess.Popen[str]":
        """Starts an endless job and waits until master and worker train and each ps runs."""
        words = ("--restarts", str(restarts), "--no-check", "--", "steps=100000", *arguments)
        process = self.launcher.start_up(self.cluster(limits), *words)
        self.launcher.wait_until_trains()
        running = ("ps", "--format", "{{.Names}}")
        wait_for(lambda: len(self.ask(*running).split()) == self.tasks, f"{self.tasks} containers")
        return process

    def containers(self) -> list[str]:
        """Returns the names of all containers of the engine, whatever their state."""
        return self.ask("ps", "--all", "--format", "{{.Names}}").split()

    def ask(self, *words: str) -> str:
        """Returns the output of a command of the container engine."""
        done = subprocess.run([self.engine, *words], capture_output=True, text=True, check=True)
        return done.stdout

    def container(self, task: str) -> str:
        """Returns the name of a task's container."""
        return f"{self.launcher.run_id()}-{task.replace('/', '-')}"

    def client(self, task: str) -> int:
        """Returns the process id of the client that runs a task's container."""
        words = f" run --label=LAUNCH_RUN_ID={self.launcher.run_id()} --label=LAUNCH_TASK={task} "
        (pid,) = [p for p, found in processes_of(self.launcher.run_id()).items() if words in found]
        return pid

    def clear(self) -> None:
        """Ends and removes everything that a test has left."""
        self.launcher.end()
        Containers(str(self.engine)).remove({})  # without labels: all containers

    def assert_nothing_left(self) -> None:
        """Asserts that soon no container is left, nor a process of the run or that names it.

        Podman's own processes, which name the run, end last.
        """
        run_id = self.launcher.run_id()
        deadline = time.monotonic() + END_SECS
        while time.monotonic() < deadline and (self.containers() or processes_naming(run_id)):
            time.sleep(0.1)
        assert self.containers() == []
        assert processes_of(run_id) == {}
        assert processes_naming(run_id) == {}


# What does not depend on the engine is tested with one: Docker's here, or podman's on two hosts.
on_docker = pytest.mark.parametrize("lab", ["docker"], indirect=True)
on_podman = pytest.mark.parametrize("lab", ["podman"], indirect=True)


@pytest.fixture(params=["docker", "podman"])
def lab(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Lab]:
    """A lab on this machine with a Docker engine, or on it and a node over ssh with podman."""
    if request.param == "docker":
        roles = "    roles: {master: 1, worker: 1, ps: 1}\n"
        hosts = f"  - name: localhost\n    address: 127.0.0.1\n{roles}"
        made = Lab(request.getfixturevalue("engine"), Launcher(tmp_path), hosts, "localhost", 3)
    else:
        nodes: Nodes = request.getfixturevalue("nodes")
        hosts = f"  - {nodes.gateway}\n  - name: node1\n    address: {nodes.address('node1')}\n"
        launcher = Launcher(tmp_path, nodes.env)
        made = Lab(request.getfixturevalue("podman"), launcher, hosts, "node1", 4)
    (made.launcher.workdir / "data").mkdir()
    yield made
    made.clear()


@pytest.fixture
def training_lab(docker: Docker, nodes: Nodes, tmp_path: Path) -> Iterator[Lab]:
    """A lab on two nodes over ssh, with podman and records."""
    launcher = Launcher(tmp_path, nodes.env)
    (launcher.workdir / "cifar10_main.py").unlink()  # the image has the program that trains
    program.make_records(launcher.workdir / "data", 1000)
    hosts = "".join(f"  - name: {n}\n    address: {nodes.address(n)}\n" for n in nodes.names[:2])
    made = Lab(docker.command, launcher, hosts, "node2", 4)
    yield made
    made.clear()


def test_a_job_runs_to_its_end(lab: Lab) -> None:
    words = ("--no-check", "--", "steps=5", "env=LAUNCH_RUN_ID")
    output = lab.launcher.up(lab.cluster(), *words)
    assert output.splitlines()[-1] == "master/0 is done"
    assert "] epoch 0.1/1  step 5/5" in output
    assert f"[worker/0 {lab.second}] LAUNCH_RUN_ID={lab.launcher.run_id()}" in output
    lab.assert_nothing_left()


def test_a_killed_launcher_leaves_nothing(lab: Lab) -> None:
    process = lab.start("worker/0:deaf", "child", limits=SHORT)
    lab.launcher.kill(process)
    lab.assert_nothing_left()
    assert lab.launcher.has_saved("master/0", "output")


@on_docker
def test_a_killed_agent_leaves_nothing(lab: Lab) -> None:
    process = lab.start("child", "deaf", limits=SHORT)
    os.kill(lab.launcher.agent_pids()[-1], signal.SIGKILL)
    output, _ = process.communicate(timeout=END_SECS)
    assert process.returncode == 1
    assert " failed: lost" in output
    lab.assert_nothing_left()


def test_a_failed_task_is_started_again_under_the_same_name(lab: Lab) -> None:
    process = lab.start("worker/0:die_once=3", "worker/0:at=2", restarts=2)
    assert lab.container("worker/0") in lab.containers()
    os.kill(lab.client("worker/0"), signal.SIGKILL)
    wait_for(lambda: lab.container("worker/0") not in lab.containers(), "end of worker/0")
    wait_for(lambda: lab.container("worker/0") in lab.containers(), "another worker/0")
    output = interrupt(process)
    assert "exit code 3; restart 1 of 2 in 1 s" in output
    assert "killed by SIGKILL; restart 2 of 2 in 2 s" in output
    lab.assert_nothing_left()


@on_podman
def test_clean_removes_what_a_power_cut_of_the_launcher_left(lab: Lab) -> None:
    process = lab.start("deaf", limits=SHORT)
    run_id = lab.launcher.run_id()
    lab.launcher.cut_power(process)
    assert len(lab.containers()) >= 3
    assert f"run {run_id}: " in lab.launcher.verb("clean")
    lab.assert_nothing_left()
    assert lab.launcher.verb("clean", "--run", run_id) == f"run {run_id}: nothing was left\n"


@on_podman
def test_values_show_in_no_process_list_or_log(lab: Lab) -> None:
    file = lab.cluster(LIMITS + "pass_environment: [API_TOKEN]\n")
    lab.launcher.check_secret(file, f"[worker/0 {lab.second}]", "--no-check")


@on_docker
def test_the_lines_of_a_plan_run_as_they_stand(lab: Lab) -> None:
    """Runs the tasks of one host without launcher or agent."""
    file = Path(lab.cluster("")[1])
    file.write_text(file.read_text().replace(", ps: 1", ""))  # only the launcher ends a ps
    words = ("plan", "--shell", "--", "print=a $(b) 'c'")
    output = lab.launcher.verb_on(("--cluster", str(file)), *words)
    # The stand-in needs the run id, which the launcher would set.
    lines = output.replace("--env=TF_CONFIG", "--env=TF_CONFIG --env=LAUNCH_RUN_ID")
    done = subprocess.run(
        ["bash", "-c", lines],
        env={**os.environ, "LAUNCH_RUN_ID": "by-hand"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stdout.count("a $(b) 'c'\n") == 2, done.stderr
    assert "step 10/10" in done.stdout
    assert lab.containers() == []


def test_a_client_that_is_killed_while_making_a_container_leaves_nothing(podman: Path) -> None:
    name = f"client-{os.getpid()}"
    words = ("run", f"--name={name}", f"--label=LAUNCH_RUN_ID={name}", STAND_IN_IMAGE)
    for _ in range(3):
        client = subprocess.Popen([podman, *words], start_new_session=True)
        # Podman's monitor starts before the container.
        wait_for(
            lambda: any("conmon " in found for found in processes_naming(name).values()), "monitor"
        )
        client.kill()
        client.wait()
        assert len(Containers(str(podman)).remove({"LAUNCH_RUN_ID": name})[0]) == 1
        wait_for(lambda: not processes_naming(name), "end of the monitor")


def test_check_looks_at_engines_images_and_mounted_records(lab: Lab) -> None:
    output = lab.launcher.verb_on(lab.cluster(), "check", exit_code=1)
    first = output.splitlines()[0]
    image = lab.ask("image", "inspect", "--format", "{{.Id}}", STAND_IN_IMAGE)
    image = image.strip().replace("sha256:", "")[:12]
    assert f", image {image}" in first
    data = lab.launcher.workdir / "data"
    assert f"no records in {data}; copy them there, or name `docker: {{data: }}`" in output


def _status(lab: Lab, task: str) -> dict[str, str]:
    """Returns what the kernel says of the first process in a task's container."""
    pid = lab.ask("inspect", "--format", "{{.State.Pid}}", lab.container(task)).strip()
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return {key: value.strip() for key, _, value in (line.partition(":") for line in lines)}


def test_a_task_has_no_capabilities_and_writes_to_its_output_alone(lab: Lab) -> None:
    process = lab.start()
    for task in ("master/0", "worker/0", "ps/0"):
        status = _status(lab, task)
        for kind in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
            assert int(status[kind], 16) == 0, (task, kind)
        assert status["NoNewPrivs"] == "1"
    folders = ("/data", "/etc", "/usr/local", "/data/data", "/tmp", "/data/output")
    write = "for folder do touch $folder/tried 2>&1 && echo $folder written; done"
    words = ("exec", lab.container("master/0"), "sh", "-c", write, "sh", *folders)
    assert lab.ask(*words).splitlines() == [
        "touch: cannot touch '/data/tried': Read-only file system",
        "touch: cannot touch '/etc/tried': Read-only file system",
        "touch: cannot touch '/usr/local/tried': Read-only file system",
        "touch: cannot touch '/data/data/tried': Read-only file system",
        "/tmp written",
        "/data/output written",
    ]
    interrupt(process)
    assert (lab.launcher.workdir / "output" / "tried").exists()
    lab.assert_nothing_left()


def test_real_training_across_two_nodes(training_lab: Lab, image: str) -> None:
    launcher = training_lab.launcher
    program.write_own(launcher.workdir / "output")
    text = "program: output/own.py\nenvironment: {PYTHONPATH: /data}\n"
    arguments = ("--model=own", "--train-steps=30", "--train-batch-size=32")
    output = launcher.up(training_lab.cluster(text, image), "--", *arguments)
    assert output.splitlines()[-1] == "master/0 is done"
    assert "[worker/0 node2] " in output
    results = launcher.workdir / "output"
    result = json.loads((results / "result.json").read_text())
    assert result["model"] == "a model of one's own"
    assert {path.stat().st_uid for path in results.rglob("*")} == {os.getuid()}
    training_lab.assert_nothing_left()


def test_real_training_saves_on_ctrl_c(training_lab: Lab, image: str) -> None:
    launcher = training_lab.launcher
    # No checkpoint is due after the first one, so a later one is that of the stop.
    endless = ("--num-layers=8", "--train-steps=1000000", "--checkpoint-steps=1000000")
    process = launcher.start_up(training_lab.cluster("", image), "--no-check", "--", *endless)
    launcher.wait_for_log("master/0", "images/s")
    output = interrupt(process)
    assert process.returncode == 130, output
    saved = [int(p.stem.split("-")[1]) for p in (launcher.workdir / "output").glob("*.index")]
    assert max(saved) > 0
    training_lab.assert_nothing_left()
