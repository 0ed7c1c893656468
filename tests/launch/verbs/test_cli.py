"""The command line: how it describes a cluster, and what it refuses."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from launch.cluster.host_list import on_this_machine
from launch.cluster.tasks import make_job
from launch.record.result import ExitReason, Result
from launch.record.run_folder import RunFolder
from launch.verbs.cli import main

Run = Callable[..., tuple[int, str]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs a command; returns its exit code and what it prints, on both streams."""

    def run(*words: str) -> tuple[int, str]:
        try:
            code = main(words)
        except SystemExit as ended:
            code = int(ended.code or 0)
        captured = capsys.readouterr()
        return code, captured.out + captured.err

    return run


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["plan"], "error: --on ssh needs hosts: name them with --hosts, --hostfile or "),
        (["up", "--cluster", "/nowhere.yaml"], "error: /nowhere.yaml: No such file or directory"),
        (["plan", "--on", "slurm", "--nodes", "9"], "error: 9 nodes are too many for 2"),
        (["status", "--", "--x"], "error: status takes no training arguments after --"),
    ],
)
def test_mistakes_are_refused_in_one_line(run: Run, words: list[str], error: str) -> None:
    code, output = run(*words)
    assert code == 2
    assert output.startswith(error)
    assert len(output.splitlines()) == 1


@pytest.mark.parametrize(
    ("words", "flag", "way", "rule"),
    [
        ("--hosts a,b --on local", "--hosts a,b", "--on local", "it needs none; give --worker"),
        ("--hosts a --nodes 2", "--nodes 2", "--on ssh", "only a backend that chooses the hosts"),
        ("--on slurm --workdir /b --hosts a", "--hosts a", "--on slurm", "it needs none; give"),
        ("--hosts a --workers 2", "--workers 2", "--hosts", "--hosts decides each host's tasks; "),
        ("--hosts a --cluster b", "--hosts a", "--cluster", "the cluster file sets this; change"),
    ],
)
def test_a_flag_that_another_one_leaves_without_a_meaning_is_refused(
    run: Run, words: str, flag: str, way: str, rule: str
) -> None:
    code, output = run("plan", *words.split())
    assert code == 2
    assert output.startswith(f"error: {flag} does not go with {way}: {rule}")


def test_the_backend_that_is_chosen_reads_the_cluster_file(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "lab.yaml"
    file.write_text("backend: slurm\ntasks: {master: 1, worker: 1, ps: 1}\nnodes: 1\n")
    code, output = run("plan", "--cluster", str(file))
    assert (code, output.splitlines()[2]) == (0, "#SBATCH --nodes=1")
    _, output = run("plan", "--cluster", str(file), "--on", "kubernetes")
    rule = "kubernetes chooses nodes itself, a pod for each task; leave them out"
    assert output == f"error: {file}:2: {rule}\n"
    _, output = run("plan", "--cluster", str(file), "--on", "ssh")
    assert output == f"error: {file}:1: hosts is missing; `init` writes a file that has it\n"


UNKNOWN = "error: unknown: --host=a --x=16; training's own arguments go after --; see "


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        ("plan --on slurm --time=1:00", "write it as --set slurm.time=VALUE"),
        ("plan --on kubernetes --image x", "write it as --set kubernetes.image=VALUE"),
        ("plan -e A=1 --stop-secs 5", "write it as --set environment.NAME=VALUE, --set limits.sto"),
        ("plan --host=a --x=16", f"{UNKNOWN}python -m launch --help\n"),
        ("cancel", "no verb cancel; the verb for that is `stop`"),
        ("log -f", "no verb log; the verb for that is `logs`"),
    ],
)
def test_words_that_are_not_known_lead_to_those_that_are(words: str, hint: str, run: Run) -> None:
    code, output = run(*words.split())
    assert (code, hint in output) == (2, True)


def test_keys_of_a_cluster_file_are_set_from_the_command_line(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "lab.yaml"
    file.write_text("backend: slurm\ntasks: {master: 1}\nslurm: {mem: 1G}\nenvironment: {A: 1}\n")
    pairs = ("slurm.partition=gpu", "slurm.options=[--constraint=ib]", "limits.stop_secs=9",
             "environment.B=x=y", "gpus=2", "workdir=/w", "name=exp1",
             "kubernetes.labels.kueue.x-k8s.io/queue-name=lab")  # fmt: skip
    code, output = run("up", "--dry-run", f"--cluster={file}", *(f"--set={pair}" for pair in pairs))
    assert code == 0
    for line in ("#SBATCH --partition=gpu", "#SBATCH --mem=1G", "#SBATCH --constraint=ib",
                 "#SBATCH --gres=gpu:2", "#SBATCH --job-name=exp1", "#SBATCH --signal=B:USR1@28",
                 "# The shell that submits it must have set: A, B", 'workdir: "/w"'):  # fmt: skip
        assert line in output.splitlines()


@pytest.mark.parametrize(
    ("pair", "error"),
    [
        ("slurm.time=soon", "--set slurm.time: time must be minutes, h:mm:ss or d-hh:mm:ss, as s"),
        ("slurm.shelf=1", "--set slurm.shelf: shelf is not a key of slurm; known: partition, acc"),
        ("shelf=1", "--set shelf: shelf is not a key of a cluster file; known: gpus_per_task, po"),
        ("tasks.worker=2", "--set tasks.worker=2: --on, --hosts, --hostfile, --workers, --ps and"),
        ("slurm=1", "--set slurm: slurm must be a mapping (`key: value` lines)"),
        ("slurm.options=[--x", "--set slurm.options=[--x: not a list as in YAML, such as [a, b]"),
        ("slurm.time", "--set must be KEY=VALUE, such as slurm.partition=gpu, got 'slurm.time'"),
    ],
)
def test_a_key_or_value_that_cannot_be_set_is_refused(pair: str, error: str, run: Run) -> None:
    code, output = run("plan", "--on", "slurm", "--set", pair)
    assert (code, output.startswith(f"error: {error}")) == (2, True)


def test_plan_list_and_status_print_the_same_form_of_json(run: Run, tmp_path: Path) -> None:
    def found(*words: str) -> Any:
        return json.loads(run(*words, "--json")[1])

    plan = found("plan", "--hosts", "bob@a,b", "--set", "environment.A=1")
    assert (plan["version"], plan["backend"], plan["environment"]) == (1, "ssh", ["A"])
    worker = plan["tasks"][2]
    assert (worker["task"], worker["host"], worker["port"]) == ("worker/0", "b", 2222)
    assert worker["TF_CONFIG"]["task"] == {"type": "worker", "index": 0}
    assert plan["tasks"][0]["user"] == "bob"
    slurm, kubernetes = (found("plan", "--on", name) for name in ("slurm", "kubernetes"))
    assert slurm["documents"][0]["text"].startswith("#!/bin/bash\n#SBATCH")
    addresses = [plan["tasks"][0]["TF_CONFIG"]["cluster"] for plan in (slurm, kubernetes)]
    assert addresses[0] == {"master": ["node0:free"], "ps": ["node0:free"]}  # no node is chosen
    assert addresses[1] == {"master": ["master-0.cifar10:2222"], "ps": ["ps-0.cifar10:2223"]}
    master, ps = found("plan", "--on", "local")["tasks"]
    assert isinstance(master["port"], int)  # one that is free now
    own = {name: [f"127.0.0.1:{task['port']}"] for name, task in (("master", master), ("ps", ps))}
    assert ps["TF_CONFIG"]["cluster"] == own
    cluster = replace(on_this_machine(0, 1), name="exp1")
    folder = RunFolder.create(tmp_path, make_job(cluster))
    folder.write_end(Result(3, "ps/0 failed", cause=ExitReason.TASK_FAILED))
    state = ("--state-dir", str(tmp_path))
    status = found("status", *state)
    ended = {"name": "exp1", "exit_code": 3, "reason": "ps/0 failed", "cause": "task failed"}
    assert {**status, **ended, "version": 1, "accuracy": None} == status
    runs = found("list", *state)
    assert runs == {"version": 1, "runs": [{k: v for k, v in status.items() if k != "version"}]}


def test_hosts_come_from_a_hostfile_with_their_slots(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "hosts"
    file.write_bytes(
        b"# mine\r\nnode0 slots=2\r\n\r\nann@node1:2 # fast\r\nnode[2-3] max-slots=8\r\n[::1]\n"
        b"node0 slots=1\n"
    )
    code, output = run("plan", "--hostfile", str(file))
    assert code == 0
    assert [line for line in output.splitlines() if " on " in line and "/" in line] == [
        *("master/0 on node0", "worker/0 on node0", "worker/1 on node0", "ps/0 on node0"),
        *("worker/2 on ann@node1", "worker/3 on ann@node1", "ps/1 on ann@node1"),
        *("worker/4 on node2", "ps/2 on node2", "worker/5 on node3", "ps/3 on node3"),
        *("worker/6 on ::1", "ps/4 on ::1"),
    ]
    for text, error in (
        ("a b c\n", "1: must be a host, such as `node0`, `node0 slots=4` or `node0:4`, got 'a b"),
        ("a\nb slots=0\n", "2: slots must be 1 or more, got 'b slots=0'"),
        ("# a\n", " no hosts; write one on each line"),
    ):
        file.write_text(text)
        code, output = run("plan", "--hostfile", str(file))
        assert (code, output.startswith(f"error: {file}:{error}")) == (2, True), output


@pytest.mark.parametrize(
    ("words", "error"),
    [
        ("plan --hosts a --workdir ~eve/a", "--workdir: must be a path on one line, in no other u"),
        ("plan --on local --python=~/a/python", "--python: must be a command, or a path on one li"),
        ("setup --hosts a --requirements ../a", "--requirements: must be a file of the checkout, "),
        ("logs --tail -1", "argument --tail: "),
        ("list --state-dir ~no-one/x", "--state-dir: ~no-one/x: there is no user no-one; a folder"),
    ],
)
def test_a_value_that_means_nothing_is_refused_with_the_rule(
    words: str, error: str, run: Run
) -> None:
    code, output = run(*words.split())
    assert (code, error in output) == (2, True)


def test_a_folder_that_the_system_refuses_is_named(run: Run) -> None:
    name = "/" + 300 * "x"
    code, output = run("list", "--state-dir", name)
    assert (code, output) == (1, f"error: {name}: File name too long\n")
