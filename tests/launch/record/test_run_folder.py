"""Which runs are kept, and which are removed."""

import json
import os
import secrets
import time
from pathlib import Path

import pytest

from launch.cluster.host_list import on_this_machine
from launch.cluster.tasks import make_job
from launch.errors import HostError, LaunchError
from launch.record import run_folder
from launch.record.run_folder import RunFolder, all_runs, find
from tests.failing_disk import every_rename_is_synced, failures_of

JOB = make_job(on_this_machine(1, 1))


def an_old_run(parent: Path, number: int, **status: object) -> Path:
    """Makes the folder of a run whose launcher has ended; returns its path."""
    folder = parent / f"20000101-00000{number}-abcd"
    (folder / "logs").mkdir(parents=True)
    (folder / "logs" / "master-0.log").write_text("hello")
    launcher = {"pid": 1, "started": "never", "boot": "", "machine": ""}
    (folder / "run.json").write_text(json.dumps({"launcher": launcher}))
    (folder / "status.json").write_text(json.dumps(status))
    return folder


def test_a_new_run_forgets_the_oldest_that_are_over(monkeypatch, tmp_path: Path) -> None:
    monkeypatch.setattr(run_folder, "_KEPT", 3)
    left = an_old_run(tmp_path, 0, tasks=[], exit_code=None)
    cleaned = an_old_run(tmp_path, 1, tasks=[])
    (cleaned / "clean").touch()
    an_old_run(tmp_path, 2, exit_code=0)
    an_old_run(tmp_path, 3, exit_code=1)
    newer = [an_old_run(tmp_path, number, exit_code=0) for number in (4, 5)]
    new = RunFolder.create(tmp_path, JOB)
    # A run that has not ended may have left processes behind, so it stays for `clean`.
    assert [run.path for run in all_runs(tmp_path)] == [left, *newer, new.path]


def test_runs_of_the_same_second_have_different_ids(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    words = iter(["aaaa", "aaaa", "bbbb"])
    monkeypatch.setattr(time, "strftime", lambda form: "20260131-090000")
    monkeypatch.setattr(secrets, "token_hex", lambda size: next(words))
    found = [RunFolder.create(tmp_path, JOB).run_id for _ in range(2)]
    assert found == ["20260131-090000-aaaa", "20260131-090000-bbbb"]


def test_the_newest_of_the_runs_of_a_second_is_the_one_that_was_made_last(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    words = iter(["bbbb", "aaaa"])
    monkeypatch.setattr(time, "strftime", lambda form: "20260131-090000")
    monkeypatch.setattr(secrets, "token_hex", lambda size: next(words))
    for number, path in enumerate(RunFolder.create(tmp_path, JOB).path for _ in range(2)):
        os.utime(path / "run.json", (number, number))
    assert run_folder.find(tmp_path).run_id == "20260131-090000-aaaa"


def test_as_many_runs_as_are_kept_stay(monkeypatch, tmp_path: Path) -> None:
    monkeypatch.setattr(run_folder, "_KEPT", 3)
    old = [an_old_run(tmp_path, number, exit_code=0) for number in (0, 1)]
    new = RunFolder.create(tmp_path, JOB)
    assert [run.path for run in all_runs(tmp_path)] == [*old, new.path]


@pytest.mark.parametrize("record", ["", "{}", '{"launcher": 5}'])
def test_an_old_run_with_a_damaged_record_hinders_no_new_one(
    monkeypatch, tmp_path: Path, record: str
) -> None:
    monkeypatch.setattr(run_folder, "_KEPT", 1)
    damaged = an_old_run(tmp_path, 0, exit_code=0)
    (damaged / "run.json").write_text(record)
    over = an_old_run(tmp_path, 1, exit_code=0)
    new = RunFolder.create(tmp_path, JOB)
    assert [run.path for run in all_runs(tmp_path)] == [damaged, new.path]
    assert not over.exists()


def test_a_task_without_a_host_is_damage_that_is_named(tmp_path: Path) -> None:
    run = RunFolder.create(tmp_path, JOB)
    run.add(tasks=[{"task": "master/0"}])
    with pytest.raises(HostError, match="run.json: damaged: it has no task's host; remove "):
        run.record()


def test_only_the_owner_may_read_a_run(tmp_path: Path) -> None:
    run = RunFolder.create(tmp_path / "new" / "state", JOB)
    run.write_status({"exit_code": 0})
    modes = {path.name: path.stat().st_mode & 0o777 for path in (run.path, *run.path.iterdir())}
    assert modes == {
        run.run_id: 0o700,
        "logs": 0o700,
        "run.json": 0o600,
        "status.json": 0o600,
    }


def test_a_run_is_on_disk_before_it_has_its_name(tmp_path: Path) -> None:
    with every_rename_is_synced() as renamed:
        RunFolder.create(tmp_path, JOB).add(facts=1)
    assert [Path(path).name for path in renamed] == ["run.json", "run.json"]


def test_whatever_fails_the_record_is_the_old_or_the_new_one(tmp_path: Path) -> None:
    run = RunFolder.create(tmp_path, JOB)
    run.write_status({"exit_code": None})
    failed = 0
    for _ in failures_of(lambda: run.write_status({"exit_code": 0})):
        failed += 1
        assert run.status() in ({"exit_code": None}, {"exit_code": 0})
    assert failed == 2
    assert run.status() == {"exit_code": 0}


def test_an_id_that_fits_several_runs_is_refused(tmp_path: Path) -> None:
    one, other = (an_old_run(tmp_path, number, exit_code=0) for number in (1, 2))
    for given in (one.name, one.name[:15]):
        assert find(tmp_path, given).path == one
    assert find(tmp_path).path == other
    with pytest.raises(LaunchError) as refused:
        find(tmp_path, "2")
    assert str(refused.value) == (
        f"--run 2 fits 2 runs in {tmp_path}, the newest are {one.name}, {other.name}; give more of "
        "the id"
    )


def test_a_whole_id_is_found_although_another_begins_with_it(tmp_path: Path) -> None:
    one = an_old_run(tmp_path, 1, exit_code=0)
    one.with_name(f"{one.name}e").mkdir()
    (one.with_name(f"{one.name}e") / "run.json").write_text("{}")
    assert find(tmp_path, one.name).path == one
