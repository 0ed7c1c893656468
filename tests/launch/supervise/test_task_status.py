"""What the table and the status file say of each task."""

import signal
from typing import Any

import pytest

from launch.cluster.model import Host
from launch.cluster.tasks import Devices, Task
from launch.supervise.supervisor import TaskState
from launch.supervise.task_status import TaskStatusTable

TERM = (int(signal.SIGTERM),)
KILL = (int(signal.SIGTERM), int(signal.SIGKILL))


def table(*states: TaskState) -> TaskStatusTable:
    return TaskStatusTable({state.task.name: state for state in states})


def state(task_type: str = "master", **changes: Any) -> TaskState:
    host = Host("node0", "node0", (), "/data")
    found = TaskState(Task(task_type, 0, host, 2222, Devices(), "{}", ()), "running")
    for name, value in changes.items():
        setattr(found, name, value)
    return found


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, "running"),
        ({"restarts": 2}, "running (2 restarts)"),
        ({"signals": TERM}, "stopping"),
        ({"status": "ended", "code": 143, "signals": TERM}, "stopped"),
        ({"status": "ended", "code": -15, "signals": TERM}, "stopped"),
        ({"status": "ended", "code": -9, "signals": KILL}, "stopped"),
        ({"status": "ended", "code": 0, "signals": TERM}, "done"),
        ({"status": "ended", "code": 1, "signals": TERM}, "ended"),
        ({"status": "ended", "code": 143}, "ended"),
        ({"status": "ended", "code": None, "signals": TERM}, "ended"),
        ({"status": "quit", "code": 0}, "done"),
        ({"status": "failed", "code": 1}, "failed"),
    ],
)
def test_a_state_tells_a_stop_of_the_launchers_from_a_failure(
    changes: dict[str, Any], words: str
) -> None:
    (row,) = table(state(**changes)).rows()
    assert row.state == words


def test_a_stopped_task_shows_what_it_saved_and_not_its_exit_code() -> None:
    stopped: dict[str, Any] = {
        "status": "ended",
        "code": 143,
        "signals": TERM,
        "last": "exit code 143",
    }
    found = table(state(**stopped), state("worker", **stopped))
    for name in ("master/0", "worker/0"):
        found.take(name, ["step 3/60  loss 2", "stopped by signal 15"])
    found.take("master/0", ["saved output/model.ckpt-3", "stopped by signal 15"])
    assert [row.last for row in found.rows()] == ["saved output/model.ckpt-3", ""]


def test_a_task_that_had_to_be_killed_says_so() -> None:
    killed = state(status="ended", code=-9, signals=KILL, last="killed by SIGKILL")
    (row,) = table(killed).rows()
    assert row.last == "killed by SIGKILL"


def test_what_the_job_saved_is_what_its_lead_saved() -> None:
    found = table(state(), state("worker"))
    found.take("worker/0", ["saved here/model.ckpt-3"])
    assert found.saved() is None
    found.take("master/0", ["saved output/model.ckpt-3", "stopped by signal 15"])
    assert found.saved() == "output/model.ckpt-3"


def test_a_step_after_the_last_one_is_the_last_one() -> None:
    found = table(state())
    found.take("master/0", ["epoch 1.0/1  step 61/60  loss 2  9 images/s"])
    assert [row.step for row in found.rows()] == ["61/61"]
