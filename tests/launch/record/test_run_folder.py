"""The folder of a run: which are kept and found, what their files hold, and how runs end."""

import json
import os
import pwd
import socket
from pathlib import Path
from typing import Optional
from unittest.mock import Mock

import pytest

from launch.cluster.host_list import on_this_machine
from launch.cluster.tasks import make_job
from launch.errors import LaunchError
from launch.record import run_folder
from launch.record.result import ExitReason, Result, end_record, exit_code_of, read_cause, words_for
from launch.record.run_folder import RunFolder, find, state_dir
from launch.supervise.task_state import TaskState
from tests.documents import check_fields
from tests.failing_disk import every_rename_is_synced, failures_of

JOB = make_job(on_this_machine(1, 1), ["--train-steps=10"])


def test_the_newest_run_or_the_one_with_the_whole_id_is_found(tmp_path: Path) -> None:
    first, other = (RunFolder.create(tmp_path, JOB).path for _ in "12")
    assert find(tmp_path, first.name).path == first
    assert find(tmp_path).path == other
    with pytest.raises(
        LaunchError, match=rf"^no run 2 in {tmp_path} \(`launch list`\); --state-dir "
    ):
        find(tmp_path, "2")


def test_without_a_home_no_folder_of_that_name_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/ann")
    monkeypatch.setenv("XDG_STATE_HOME", "")
    assert state_dir() == Path("/home/ann/.local/state/cifar10-launch")

    def nobody(uid: int) -> None:
        raise KeyError(uid)

    monkeypatch.delenv("HOME")
    monkeypatch.setattr(pwd, "getpwuid", nobody)
    for given in ("", "state", "~/state"):
        monkeypatch.setenv("XDG_STATE_HOME", given)
        with pytest.raises(LaunchError, match="must be absolute, got .*state; set HOME, or give"):
            state_dir()
    assert state_dir("x") == Path("x")
    monkeypatch.setenv("XDG_STATE_HOME", "/state")
    assert state_dir() == Path("/state/cifar10-launch")


def test_a_launcher_in_another_container_may_run(tmp_path: Path) -> None:
    run = RunFolder.create(tmp_path, JOB)
    assert (run.launcher_pid(), run.other_machine()) == (os.getpid(), None)
    # Whatever process has the launcher's number in this one, it is not the launcher.
    launcher, machine = run.record()["launcher"], f"{socket.gethostname()} pid:[1]"
    run.add(launcher={**launcher, "machine": machine})
    assert (run.launcher_pid(), run.other_machine()) == (None, machine)
    run.add(launcher={**launcher, "boot": "an earlier one"})
    assert (run.launcher_pid(), run.other_machine()) == (None, None)


def test_a_run_is_on_disk_before_it_has_its_name(tmp_path: Path) -> None:
    with every_rename_is_synced() as renamed:
        RunFolder.create(tmp_path, JOB).add(facts=1)
    assert [Path(path).name for path in renamed] == ["run.json", "run.json"]


def test_whatever_fails_the_record_is_the_old_or_the_new_one(tmp_path: Path) -> None:
    run = RunFolder.create(tmp_path, JOB)
    run.write_status({"exit_code": None, "tasks": []})
    failed = 0
    for _ in failures_of(lambda: run.write_status({"exit_code": 0, "tasks": []})):
        failed += 1
        assert run.status()["exit_code"] in (None, 0)
    assert failed == 2
    assert run.status()["exit_code"] == 0


@pytest.mark.parametrize("status", ["", '{"exit_code": null, "reason": null, "tasks": []}', "{"])
def test_the_end_of_a_run_needs_no_room_on_the_disk_and_no_status(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, status: str
) -> None:
    run = RunFolder.create(tmp_path, JOB)
    size = (run.path / "end.json").stat().st_size
    (run.path / "status.json").write_text(status)
    monkeypatch.setattr(run_folder, "_replace", Mock(side_effect=OSError(28, "full")))
    for details in (("  | x",), ("x" * size,)):
        run.write_end(Result(3, "worker/0 failed", details=details))
        assert run.end() == Result(3, "worker/0 failed", details=details[: len(details[0]) < 9])
    assert (run.path / "end.json").stat().st_size == size
    run.reserve_end()
    assert run.end() is None


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (0, "exit code 0"),
        (-9, "killed by SIGKILL"),
        (-99, "killed by signal 99"),  # a signal without a name
        (None, "lost"),
    ],
)
def test_an_end_in_words(code: Optional[int], words: str) -> None:
    assert words_for(code) == words


@pytest.mark.parametrize(
    ("code", "exit_code"),
    # A task that was lost is a failure, and so is a ps that ended with 0 before it was asked to.
    [(3, 3), (-1, 129), (-9, 137), (-15, 143), (0, 1), (None, 1)],
)
def test_the_launchers_exit_code_is_that_of_the_failed_task(
    code: Optional[int], exit_code: int
) -> None:
    assert exit_code_of(code) == exit_code


def test_a_status_file_keeps_the_cause() -> None:
    record = end_record(Result(143, "it was asked to end", cause=ExitReason.PLATFORM))
    assert record == {"exit_code": 143, "reason": "it was asked to end", "cause": "platform"}
    assert read_cause(record) is ExitReason.PLATFORM
    assert end_record(None) == {"exit_code": None, "reason": None, "cause": None}


PAGE = "docs/outputs.md"


def test_the_page_names_the_fields_of_run_json(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path, JOB)
    of_kubernetes = ("context", "namespace", "name", "limits", "restarts", "passed")
    of_other_backends = ["engine", *(f"kubernetes.{x}" for x in of_kubernetes)]
    assert check_fields(PAGE, "run.json", folder.record()) == ([], of_other_backends)
    assert {path.name for path in folder.path.iterdir()} == {"run.json", "end.json"}


def test_the_page_names_the_fields_of_status_json(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path, JOB)
    tasks = [vars(TaskState(task).row()) for task in JOB.tasks]
    end = end_record(Result(0, "master/0 is done"))
    folder.write_status({"time": 1.0, **end, "tasks": tasks})
    status = json.loads((folder.path / "status.json").read_text())
    assert check_fields(PAGE, "status.json", status) == ([], ["details[]"])
    folder.write_end(Result(3, "worker/0 failed", details=("  | x",)))
    assert check_fields(PAGE, "status.json", folder.status()) == ([], [])
