"""Which runs are kept, and which are removed."""

import json
from pathlib import Path

from launch.cluster.host_list import on_this_machine
from launch.cluster.tasks import make_job
from launch.record import run_folder
from launch.record.run_folder import RunFolder, all_runs

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


def test_as_many_runs_as_are_kept_stay(monkeypatch, tmp_path: Path) -> None:
    monkeypatch.setattr(run_folder, "_KEPT", 3)
    old = [an_old_run(tmp_path, number, exit_code=0) for number in (0, 1)]
    new = RunFolder.create(tmp_path, JOB)
    assert [run.path for run in all_runs(tmp_path)] == [*old, new.path]
