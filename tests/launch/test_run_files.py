"""docs/outputs.md names every field of the files that the launcher keeps of a run."""

import json
from pathlib import Path

from launch.cluster.host_list import on_this_machine
from launch.cluster.tasks import make_job
from launch.record import events
from launch.record.outcome import Outcome
from launch.record.run_folder import RunFolder
from launch.supervise.supervisor import TaskState
from launch.supervise.task_status import TaskStatusTable
from tests.documents import check_fields

PAGE = "docs/outputs.md"
JOB = make_job(on_this_machine(1, 1), ["--train-steps=10"])


def test_the_page_names_the_fields_of_run_json(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path, JOB)
    folder.add(command="python -m launch up --on local")  # as `up` does
    of_other_backends = ["engine", *(f"kubernetes.{x}" for x in ("context", "namespace", "name"))]
    assert check_fields(PAGE, "run.json", folder.record()) == ([], of_other_backends)
    assert {path.name for path in folder.path.iterdir()} == {"run.json", "logs"}


def test_the_page_names_the_fields_of_status_json(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path, JOB)
    table = TaskStatusTable({task.name: TaskState(task) for task in JOB.tasks})
    folder.write_status(table.status(Outcome(0, "master/0 is done")))
    status = json.loads((folder.path / "status.json").read_text())
    assert check_fields(PAGE, "status.json", status) == ([], ["details[]"])
    folder.write_end(Outcome(3, "worker/0 failed", details=("  | x",)))
    assert check_fields(PAGE, "status.json", folder.status()) == ([], [])


def test_the_page_names_the_fields_of_an_event(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path, JOB)
    events.add(folder, [events.event("run ends", "done", "ps/0", "localhost", exit_code=0)])
    (line,) = events.path_of(folder).read_text().splitlines()
    assert check_fields(PAGE, "events.jsonl", json.loads(line)) == ([], [])
