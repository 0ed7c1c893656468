"""`docker run` for every task: what is planned, what is run, what is refused."""

import re
import socket
from pathlib import Path
from typing import Any

import pytest

from launch.backends.docker import Docker, DockerSettings, for_agents, is_here
from launch.backends.registry import BACKENDS
from launch.cluster.model import Cluster, Host
from launch.cluster.tasks import Job, make_job
from launch.connect.host_check import problems
from launch.errors import LaunchError
from tests.launch.backends.samples import read

GOOD: dict[str, Any] = {
    "engine_error": None,
    "image": "0123456789ab",
    "data": "da7a",
    "ports": [],
    "gpus": [],
    "disk_free": 50 << 30,
}


def make_cluster(*arguments: str, **settings: Any) -> Job:
    hosts = (
        Host("ip0", "ip0", (("master", 1), ("ps", 1)), workdir="/lab"),
        Host("ip1", "ip1", (("worker", 1),), workdir="~/it's", user="alice", gpus=1),
    )
    cluster = Cluster(
        hosts,
        "docker",
        settings={"docker": DockerSettings(**settings)},
        pass_environment=("TOKEN",),
    )
    return make_job(cluster, arguments)


def test_agents_get_the_command_without_any_value() -> None:
    job = for_agents(make_cluster("--x=a b"), "run7")
    names = ("TF_CONFIG", "CUDA_VISIBLE_DEVICES", "LAUNCH_RUN_ID", "TOKEN")
    words = ("docker", "run", *(f"--env={name}" for name in names), "--name=run7-master-0", "--rm")
    assert job.tasks[0].argv[: len(words)] == words
    assert job.tasks[0].argv[-3:] == ("cifar10", "/data/cifar10_main.py", "--x=a b")


def test_restrictions_can_be_left_out_or_be_loosened_one_by_one() -> None:
    (task, *_) = for_agents(make_cluster(restricted=False), "run7").tasks
    assert "--cap-drop=ALL" not in task.argv
    assert "--read-only" not in task.argv
    (task, *_) = for_agents(make_cluster(options=("--cap-add=SYS_NICE",)), "run7").tasks
    assert task.argv.index("--cap-add=SYS_NICE") > task.argv.index("--cap-drop=ALL")


def test_the_plan_is_lines_for_a_shell() -> None:
    documents = BACKENDS["docker"].plan(make_cluster("--x=a b", options=("--shm-size=1g",)))
    assert [document.name for document in documents] == [
        "ip0: master/0, ps/0",
        "alice@ip1: worker/0",
    ]
    cluster = '{"master": ["ip0:2222"], "ps": ["ip0:2223"], "worker": ["ip1:2222"]}'
    task = '{"type": "worker", "index": 0}'
    end = (
        "--name=cifar10-worker-0 --rm --network=host --pull=never --log-driver=none "
        "--cap-drop=ALL --security-opt=no-new-privileges --read-only "
        "--tmpfs=/tmp:rw,nosuid,nodev,noexec,mode=1777,size=1g "
        "--shm-size=1g cifar10 /data/cifar10_main.py '--x=a b' &"
    )
    assert documents[1].text == (
        """mkdir -p "$HOME"'/it'"'"'s/output' && { """
        f'TF_CONFIG=\'{{"cluster": {cluster}, "task": {task}, "environment": "cloud"}}\' '
        'CUDA_VISIBLE_DEVICES=0 TOKEN="${TOKEN:?}" docker run --user="$(id -u):$(id -g)" '
        "--env=TF_CONFIG --env=TOKEN --env=CUDA_VISIBLE_DEVICES --gpus=all "
        """--mount=type=bind,source="$HOME"'/it'"'"'s/data,target=/data/data,readonly' """
        f"""--mount=type=bind,source="$HOME"'/it'"'"'s/output,target=/data/output' {end} wait; }}"""
    )
    assert documents[0].text.startswith("mkdir -p /lab/output && { TF_CONFIG=")


def test_a_ps_is_given_no_folders_and_no_gpu() -> None:
    line = BACKENDS["docker"].plan(make_cluster())[0].text.split(" & ")[1]
    assert "--mount" not in line
    assert "CUDA_VISIBLE_DEVICES='' " in line
    assert " --env=CUDA_VISIBLE_DEVICES " in line


def test_a_work_dir_that_no_container_has_is_refused_by_name() -> None:
    words = (
        "--data-dir wd/data: in a container it is /data/data; leave it and --work-dir out, and "
        "name the hosts' folder with `docker: {data: wd/data}`"
    )
    with pytest.raises(LaunchError, match=re.escape(words)):
        BACKENDS["docker"].plan(make_cluster("--work-dir=wd"))
    BACKENDS["docker"].plan(make_cluster("--work-dir=/data"))


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("image: -v", "lab.yaml:4: image must be an image, such as registry/cifar10:3, got '-v'"),
        ("engine: docker run", "lab.yaml:4: engine must be docker, podman, or a path"),
        ("options: [-v, /a:/b]", "lab.yaml:4: options must be options like --name or --name=value"),
        ("options: [--env=A=1]", "which the launcher sets, got '--env=A=1'"),
    ],
)
def test_mistakes_are_named_with_their_line(tmp_path: Path, text: str, error: str) -> None:
    with pytest.raises(LaunchError) as caught:
        read(tmp_path, f"backend: docker\nhosts: [a, b]\ndocker:\n  {text}\n")
    assert error in str(caught.value)


@pytest.mark.parametrize(
    ("host", "here"), [("localhost", True), (socket.gethostname(), True), ("192.0.2.1", False)]
)
def test_this_machine_needs_no_ssh(host: str, here: bool) -> None:
    assert is_here(Host(host, host, (), workdir="")) is here
    assert not is_here(Host(host, host, (), workdir="", user="alice"))


@pytest.mark.parametrize(
    ("second", "problem"),
    [
        ({"image": None}, "ip1: it has no image cifar10; copy the same image to all hosts: docker"),
        ({"image": "bad1"}, "ip1: image is bad1, but 0123456789ab on ip0; copy the same image"),
        ({"engine_error": "no docker", "image": None}, "ip1: no docker"),
    ],
)
def test_check_tells_what_is_wrong_with_an_engine(second: dict[str, Any], problem: str) -> None:
    job = make_cluster(data="/records")
    facts = {"ip0": GOOD, "ip1": {**GOOD, "gpus": ["A"], **second}}
    (found,) = problems(job, facts, Docker().needs(job))
    assert found.startswith(problem)
