"""`list`: what is shown of all runs."""

import json
import os
import socket
import time
from pathlib import Path

import pytest

from launch.backends.registry import KINDS, backend_named
from launch.cluster.cluster_file import read_cluster
from launch.cluster.host_list import on_this_machine
from launch.cluster.tasks import make_job
from launch.record.outcome import Cause, Outcome
from launch.record.run_folder import RunFolder
from launch.verbs import cli, listing

JOB = make_job(on_this_machine(1, 1))


def a_run(parent: Path, number: int, **changes: object) -> RunFolder:
    """Makes the folder of a run whose launcher has ended; `changes` are for run.json."""
    made = RunFolder.create(parent, JOB)
    folder = RunFolder(made.path.with_name(f"20260131-00000{number}-abcd"))
    made.path.rename(folder.path)
    now = {"began": time.time() - 200 + number}
    gone = {"pid": 1, "started": "never", "boot": "", "machine": socket.gethostname()}
    folder.add(**{"launcher": gone, **now, **changes})
    return folder


def said(parent: Path, capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert cli.main(["list", "--state-dir", str(parent), *words]) == 0
    return capsys.readouterr().out


def test_runs_are_listed_with_the_newest_first(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "output"
    output.mkdir()
    done = a_run(tmp_path / "runs", 1, output=str(output), began=time.time() - 7500)
    (output / "result.json").write_text('{"figures": {"eval_accuracy": 0.9132}}')
    done.write_status({"tasks": [{"task": "master/0", "step": "282/282"}]})
    done.write_end(Outcome(0, "master/0 is done", cause=Cause.DONE))
    a_run(tmp_path / "runs", 2).write_end(Outcome(3, "worker/0 failed", cause=Cause.TASK_FAILED))
    a_run(tmp_path / "runs", 3).write_end(Outcome(130, "stopped by SIGINT", cause=Cause.USER))
    a_run(tmp_path / "runs", 4)
    a_run(tmp_path / "runs", 5, launcher=RunFolder.create(tmp_path / "x", JOB).record()["launcher"])
    (tmp_path / "runs" / "20260131-000004-abcd" / "run.json").write_text("{")
    a_run(tmp_path / "runs", 0, began=time.time() - 7980)
    there = {"pid": 1, "started": "5", "boot": "b", "machine": "login1"}
    a_run(tmp_path / "runs", 6, launcher=there)
    ended = a_run(tmp_path / "runs", 7, launcher=there)
    ended.write_end(Outcome(0, "master/0 is done", cause=Cause.DONE))
    assert [" ".join(line.split()) for line in said(tmp_path / "runs", capsys).splitlines()] == [
        "run state age backend tasks step accuracy",
        "20260131-000007-abcd done 3 min local 3",
        "20260131-000006-abcd elsewhere 3 min local 3",
        "20260131-000005-abcd starting 3 min local 3",
        "20260131-000003-abcd stopped 3 min local 3",
        "20260131-000002-abcd failed (exit code 3) 3 min local 3",
        "20260131-000001-abcd done 2 h 05 min local 3 282/282 91.32 %",
        "20260131-000000-abcd not followed 2 h 13 min local 3",
        "20260131-000004-abcd damaged",
    ]


def test_the_list_for_programs_has_the_same_facts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert json.loads(said(tmp_path, capsys, "--json")) == []
    run = a_run(tmp_path, 1, began=5.0)
    run.write_end(Outcome(3, "worker/0 failed", cause=Cause.TASK_FAILED))
    assert json.loads(said(tmp_path, capsys, "--json")) == [
        {
            "run": run.run_id, "state": "failed (exit code 3)", "began": 5.0, "backend": "local",
            "tasks": 3, "step": "", "eval_accuracy": None, "reason": "worker/0 failed",
            "folder": str(run.path),
        }
    ]  # fmt: skip


def test_no_runs_are_no_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert said(tmp_path, capsys) == f"no runs in {tmp_path}\n"


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ('{"figures": {"eval_accuracy": 0.9}}', -100),  # by an earlier run
        ('{"figures": {"eval_accuracy": 0.9}}', 100),  # by a later one
        ('{"figures": {"eval_accuracy": "0.9"}}', 1),
        ('{"figures": {"eval_accuracy": NaN}}', 1),
        ('{"figures": []}', 1),
        ("[]", 1),
        ("{", 1),
    ],
)
def test_a_figure_of_another_run_or_a_damaged_one_is_not_shown(
    tmp_path: Path, text: str, written: float
) -> None:
    began = time.time() - 1000
    run = a_run(tmp_path / "runs", 1, output=str(tmp_path), began=began)
    run.write_status({"exit_code": 0, "time": began + 10, "tasks": []})
    (tmp_path / "result.json").write_text(text)
    os.utime(tmp_path / "result.json", (began + written, began + written))
    assert listing.facts_of(run).eval_accuracy is None


@pytest.mark.parametrize(
    ("text", "arguments", "folder"),
    [
        ("backend: local\nhosts: [{name: localhost, workdir: /w}]\n", [], "/w/output"),
        ("hosts: [{name: n0, workdir: /w}]\n", ["--output-dir=run1"], "/w/run1"),
        ("hosts: [{name: n0, workdir: /w}]\n", ["--output-dir", "/o"], "/o"),
        ("hosts: [{name: n0, workdir: /w}]\n", ["--work-dir=d", "--output-dir=o"], "/w/d/o"),
        ("hosts: [{name: n0, workdir: /w}]\n", ["--output-dir=~/run1"], "~/run1"),
        ("hosts: [{name: n0, workdir: ~/w}]\n", ["--output-dir=run1"], "~/w/run1"),
        ("backend: docker\nhosts: [{name: n0, workdir: /w}]\n", [], "/w/output"),
        (
            "backend: docker\nhosts: [{name: n0, workdir: /w}]\ndocker: {output: /results}\n",
            ["--output-dir=/data/output/a"],
            "/results/a",
        ),
        ("backend: kubernetes\ntasks: {master: 1}\n", [], None),
    ],
)
def test_the_folder_of_the_results_is_known_for_each_backend(
    tmp_path: Path, text: str, arguments: "list[str]", folder: "str | None"
) -> None:
    (tmp_path / "lab.yaml").write_text(text)
    job = make_job(read_cluster(str(tmp_path / "lab.yaml"), KINDS), arguments)
    assert backend_named(job.cluster.backend).output_folder(job) == folder
