"""status, logs, list, stop and clean, from another terminal."""

import os
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from launch.backends.kubernetes.backend import Kubernetes
from launch.backends.registry import BACKENDS
from launch.cluster.host_list import on_this_machine
from launch.cluster.model import Limits
from launch.cluster.tasks import make_job
from launch.errors import HostError
from launch.record.result import ExitReason, Result
from launch.record.run_folder import RunFolder
from launch.verbs import cli
from tests.launch.backends.samples import read
from tests.launch.launcher import TWO, Launcher, assert_nothing_left, processes_of, wait_for

Said = Callable[..., str]


@pytest.fixture
def said(capfd: pytest.CaptureFixture[str]) -> Said:
    """Runs a command on the runs in a folder; returns what it prints, on both streams."""

    def run(parent: Path, verb: str, *words: str, code: int = 0) -> str:
        assert cli.main([verb, "--state-dir", str(parent), *words]) == code
        printed = capfd.readouterr()
        return printed.out + printed.err

    return run


def a_run(parent: Path) -> RunFolder:
    """Makes a run whose launcher has ended."""
    folder = RunFolder.create(parent, make_job(on_this_machine(1, 1)))
    folder.add(launcher={**folder.record()["launcher"], "started": "0"})
    return folder


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunFolder]:
    """A job of three tasks that goes on, each of which has started a child."""
    launcher = Launcher(tmp_path_factory.mktemp("running"))
    launcher.start_up(TWO, "--", "steps=100000", "child", "deaf")
    launcher.wait_until_trains()
    folder = RunFolder(launcher.state / launcher.run_id())

    def children() -> int:
        return sum("time.sleep(300)" in words for words in processes_of(folder.run_id).values())

    wait_for(lambda: children() == 3, "three children")
    yield folder
    launcher.end()


def test_status_shows_no_escape_codes(tmp_path: Path, said: Said) -> None:
    cells = dict.fromkeys(("state", "step", "last"), "c\x1b]0;d\x07")
    row = {"task": "master/0", "host": "localhost", **cells}
    found = {"exit_code": 0, "reason": "a\x1b[2Jb", "time": 0.0, "tasks": [row]}
    a_run(tmp_path).write_status(found)
    output = said(tmp_path, "status")
    assert "a[2Jb" in output
    assert "c]0;d" in output
    assert not set("\x1b\x07") & set(output)


def test_clean_refuses_a_run_that_goes_on(running: RunFolder, said: Said) -> None:
    output = said(running.path.parent, "clean", "--run", running.run_id, code=2)
    assert f"run {running.run_id} is still running; end it with `stop`" in output
    assert running.launcher_pid() is not None


def test_a_run_of_another_machines_launcher_is_left_to_that_machine(
    running: RunFolder, said: Said
) -> None:
    launcher, state, run_id = running.record()["launcher"], running.path.parent, running.run_id
    running.add(launcher={**launcher, "machine": "login1"})
    words = (
        f"run {run_id}: its launcher runs, or ran, on login1: ask there; if it is gone, to end the "
        f"remaining processes: clean --run {run_id}\n"
    )
    assert said(state, "clean") == words
    assert said(state, "status", code=1).startswith(words)
    assert said(state, "stop", code=1) == f"error: {words}"
    assert said(state, "attach", code=1).endswith(f"error: {words}")
    assert len(processes_of(run_id)) > 3
    running.add(launcher=launcher)


def test_clean_ends_a_run_of_another_machines_launcher_if_it_is_named(
    tmp_path: Path, said: Said
) -> None:
    folder = a_run(tmp_path)
    folder.add(launcher={**folder.record()["launcher"], "machine": "login1"})
    left = subprocess.Popen(["sleep", "300"], env={**os.environ, "LAUNCH_RUN_ID": folder.run_id})
    output = said(tmp_path, "clean", "--run", folder.run_id)
    assert output == f"run {folder.run_id}: localhost: ended 1 ({left.pid})\n"
    assert left.wait() == -15


def test_stop_now_ends_the_run_without_a_wait(running: RunFolder, said: Said) -> None:
    """The last test that uses this run; its tasks ignore SIGTERM."""
    began = time.monotonic()
    said(running.path.parent, "stop", "--now")
    assert time.monotonic() - began < Limits().stop_secs / 2
    assert_nothing_left(running.run_id)


def test_a_job_that_goes_on_in_kubernetes_is_said_to_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: Said
) -> None:
    folder = a_run(tmp_path)
    folder.add(backend="kubernetes")
    job = SimpleNamespace(state=lambda: "job cifar10-r1")
    monkeypatch.setattr(Kubernetes, "job_of", lambda *_: job)
    monkeypatch.setattr(Kubernetes, "clean", None)
    words = f"run {folder.run_id}: continues without its launcher: job cifar10-r1; to end it:"
    assert said(tmp_path, "status").startswith(f"{words} stop --run {folder.run_id}\n")
    last = said(tmp_path, "attach", code=1).splitlines()[-1]
    lacks = "lacks its limits, as one of an earlier version"
    assert last == f"error: run {folder.run_id} {lacks}; to end it: stop --run {folder.run_id}"
    assert said(tmp_path, "clean") == f"{words} stop --run {folder.run_id}\n"

    def refuse(*_: object) -> str:
        raise HostError("kubectl: it failed without an error message")

    job.state = refuse
    for verb in ("status", "clean"):
        error = "error: kubectl: it failed without an error message\n"
        assert said(tmp_path, verb, code=1) == error


def test_a_start_that_submitted_nothing_leaves_no_run(launcher: Launcher) -> None:
    launcher.env["PATH"] = "/nowhere"
    last = launcher.up(("--on", "slurm"), exit_code=1).splitlines()[-1]
    assert last == "error: no sbatch on PATH here; run this on a login node of the cluster"
    assert list(launcher.state.iterdir()) == []


def test_a_run_whose_scheduler_is_not_here_is_listed_and_can_be_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: Said
) -> None:
    folder = a_run(tmp_path)
    folder.add(backend="slurm")
    monkeypatch.setenv("PATH", "/nowhere")
    why = "no squeue on PATH here; run this on a login node of the cluster"
    status = said(tmp_path, "status", code=1)
    assert f"; whether the job goes on is not known: {why}\n" in status
    assert said(tmp_path, "clean", code=1) == f"error: {why}; --forget takes the run off the list\n"
    forgotten = f"run {folder.run_id}: forgotten; {folder.path} is removed\n"
    assert said(tmp_path, "clean", "--forget") == forgotten
    assert said(tmp_path, "list") == f"no runs in {tmp_path}\n"


def test_a_stop_of_a_run_that_has_ended_is_no_error(tmp_path: Path, said: Said) -> None:
    folder = a_run(tmp_path)
    folder.write_end(Result(3, "worker/0 failed", cause=ExitReason.TASK_FAILED))
    words = f"run {folder.run_id} has ended before: exit code 3: worker/0 failed\n"
    assert said(tmp_path, "stop") == words


JOB = make_job(on_this_machine(1, 1))


def numbered(parent: Path, number: int, **changes: object) -> RunFolder:
    """Makes the folder of a run whose launcher has ended; `changes` are for run.json."""
    made = RunFolder.create(parent, JOB)
    folder = RunFolder(made.path.with_name(f"20260131-00000{number}-abcd"))
    made.path.rename(folder.path)
    now = {"began": time.time() - 200 + number}
    gone = {**folder.record()["launcher"], "started": "never"}
    folder.add(**{"launcher": gone, **now, **changes})
    return folder


def test_runs_are_listed_with_the_newest_first(
    tmp_path: Path, said: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = time.time()  # Ages stay as they are.
    monkeypatch.setattr(time, "time", lambda: now)
    output = tmp_path / "output"
    output.mkdir()
    done = numbered(tmp_path / "runs", 1, output=str(output), began=time.time() - 7500)
    (output / "result.json").write_text('{"figures": {"eval_accuracy": 0.9132}}')
    done.write_status({"tasks": [{"task": "master/0", "step": "282/282"}]})
    done.write_end(Result(0, "master/0 is done", cause=ExitReason.DONE))
    numbered(tmp_path / "runs", 2).write_end(
        Result(3, "worker/0 failed", cause=ExitReason.TASK_FAILED)
    )
    numbered(tmp_path / "runs", 3).write_end(
        Result(130, "stopped by SIGINT", cause=ExitReason.USER)
    )
    numbered(tmp_path / "runs", 4)
    numbered(
        tmp_path / "runs", 5, launcher=RunFolder.create(tmp_path / "x", JOB).record()["launcher"]
    )
    (tmp_path / "runs" / "20260131-000004-abcd" / "run.json").write_text("{")
    numbered(tmp_path / "runs", 0, began=time.time() - 7980)
    there = {"pid": 1, "started": "5", "boot": "b", "machine": "login1"}
    numbered(tmp_path / "runs", 6, launcher=there)
    ended = numbered(tmp_path / "runs", 7, launcher=there)
    ended.write_end(Result(0, "master/0 is done", cause=ExitReason.DONE))
    assert [" ".join(line.split()) for line in said(tmp_path / "runs", "list").splitlines()] == [
        "run name state age backend tasks step accuracy",
        "20260131-000007-abcd done 3m13s local 3",
        "20260131-000006-abcd on another host 3m14s local 3",
        "20260131-000005-abcd running 3m15s local 3",
        "20260131-000004-abcd damaged",
        "20260131-000003-abcd stopped 3m17s local 3",
        "20260131-000002-abcd failed (exit code 3) 3m18s local 3",
        "20260131-000001-abcd done 2h05m local 3 282/282 91.32 %",
        "20260131-000000-abcd launcher lost 2h13m local 3",
    ]


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ('{"figures": {"eval_accuracy": 0.9}}', -100),  # by an earlier run
        ('{"figures": {"eval_accuracy": 0.9}}', 100),  # by a later one
        ('{"figures": {"eval_accuracy": "0.9"}}', 1),
        ("{", 1),
    ],
)
def test_a_figure_of_another_run_or_a_damaged_one_is_not_shown(
    tmp_path: Path, text: str, written: float
) -> None:
    began = time.time() - 1000
    run = numbered(tmp_path / "runs", 1, output=str(tmp_path), began=began)
    run.write_status({"exit_code": 0, "time": began + 10, "tasks": []})
    (tmp_path / "result.json").write_text(text)
    os.utime(tmp_path / "result.json", (began + written, began + written))
    assert run.accuracy() is None


@pytest.mark.parametrize(
    ("text", "arguments", "folder"),
    [
        ("backend: local\nhosts: [{name: localhost, workdir: /w}]\n", [], "/w/output"),
        ("hosts: [{name: n0, workdir: /w}]\n", ["--output-dir=run1"], "/w/run1"),
        ("hosts: [{name: n0, workdir: /w}]\n", ["--work-dir=d", "--output-dir=o"], "/w/d/o"),
        ("hosts: [{name: n0, workdir: ~/w}]\n", ["--output-dir=run1"], "~/w/run1"),
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
    job = make_job(read(tmp_path, text), arguments)
    assert BACKENDS[job.cluster.backend].output_folder(job) == folder


@pytest.mark.parametrize("verb", ["status", "logs", "stop", "attach", "clean"])
def test_a_damaged_record_is_told_in_one_line_with_the_way_out(
    tmp_path: Path, verb: str, said: Said
) -> None:
    folder = RunFolder.create(tmp_path, JOB)
    (folder.path / "run.json").write_text('{"backend": "local", "tasks": 5}')
    output = said(tmp_path, verb, "--run", folder.run_id, code=1)
    assert output == (
        f"error: {folder.path}/run.json is damaged (it lacks began, hosts, launcher, run); end "
        f"what has {folder.run_id} in its environment or name on the hosts, then remove that "
        "folder\n"
    )


def modes_below(folder: Path) -> "dict[str, int]":
    return {
        str(path.relative_to(folder)): path.stat().st_mode & 0o777
        for path in (folder, *folder.rglob("*"))
    }


def test_the_files_of_a_run_are_their_owners_alone(launcher: Launcher) -> None:
    before = os.umask(0o022)
    try:
        launcher.up(TWO, "--detach", "--", "steps=2", "flood=10")
        for verb in ("attach", "clean"):
            assert cli.main([verb, "--state-dir", str(launcher.state)]) == 0
    finally:
        os.umask(before)
    run = launcher.run_id()
    folders = {".", run}
    files = ["run.json", "status.json", "end.json", "output.log"]
    assert modes_below(launcher.state) == {
        **dict.fromkeys(folders, 0o700),
        **{f"{run}/{name}": 0o600 for name in files},
    }
