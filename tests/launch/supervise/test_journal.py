"""events.jsonl: what happens to the tasks of a run, and why."""

import json
import re
from pathlib import Path

import pytest

from launch.cluster.host_list import from_hosts
from launch.cluster.model import Limits
from launch.cluster.tasks import make_job
from launch.record import events
from launch.record.outcome import Cause, Outcome
from launch.record.run_folder import RunFolder
from launch.supervise.journal import Journal, run_ends
from launch.supervise.supervisor import Supervisor

JOB = make_job(from_hosts("n0,n1"))


class Scene:
    """A supervisor whose journal looks after each step."""

    def __init__(self, folder: Path, restarts: int = 0) -> None:
        self.folder = RunFolder(folder)
        self.supervisor = Supervisor(JOB.tasks, Limits(), restarts, 0.0)
        self.journal = Journal(self.folder, self.supervisor.states)
        self.supervisor.start()
        self.look()
        for name in self.supervisor.states:
            self.supervisor.started(name)
        self.look()
        self._known = len(self.lines())

    def look(self) -> None:
        self.journal.look(self.supervisor.verdict)

    def lines(self) -> "list[dict[str, object]]":
        text = events.path_of(self.folder).read_text()
        return [json.loads(line) for line in text.splitlines()]

    def news(self) -> "list[tuple[object, ...]]":
        """Returns (task, host, what, reason) of the events after the start."""
        self.look()
        return [
            (line["task"], line["host"], line["what"], line["reason"])
            for line in self.lines()[self._known :]
        ]


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


def test_every_start_is_written_once_with_its_time_in_utc(scene: Scene) -> None:
    lines = scene.lines()
    assert [line["what"] for line in lines] == ["start"] * 4
    assert {line["task"] for line in lines} == {"master/0", "worker/0", "ps/0", "ps/1"}
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", str(lines[0]["time"]))
    assert lines[0].keys() == {"time", "task", "host", "what", "reason"}
    assert events.path_of(scene.folder).stat().st_mode & 0o777 == 0o600


def test_a_restart_has_the_reason_of_the_end_before_it(tmp_path: Path) -> None:
    scene = Scene(tmp_path, restarts=1)
    scene.supervisor.ended("worker/0", -9, 5.0)
    scene.look()
    scene.supervisor.tick(7.0)
    assert scene.news() == [
        ("worker/0", "n1", "restart", "killed by SIGKILL"),
        ("worker/0", "n1", "start", "restart 1"),
    ]


def test_the_failure_comes_before_the_signals_that_follow_from_it(scene: Scene) -> None:
    scene.supervisor.ended("worker/0", 3, 5.0)
    assert scene.news() == [
        ("worker/0", "n1", "end", "exit code 3"),
        ("master/0", "n0", "signal", "SIGTERM: worker/0 on n1 failed: exit code 3"),
    ]


def test_a_lost_host_is_named_once_and_before_its_tasks(scene: Scene) -> None:
    for task in ("worker/0", "ps/1"):
        scene.supervisor.ended(task, None, 5.0, "lost: the link is down", Cause.HOST_LOST)
    assert scene.news()[:3] == [
        (None, "n1", "host lost", "lost: the link is down"),
        ("worker/0", "n1", "end", "lost: the link is down"),
        ("ps/1", "n1", "end", "lost: the link is down"),
    ]


def test_a_lost_host_of_which_no_task_tells_is_named_once(scene: Scene) -> None:
    lost = Outcome(1, "the node is gone", cause=Cause.HOST_LOST)
    for _ in range(2):
        scene.journal.look(lost)
    assert scene.news() == [(None, None, "host lost", "the node is gone")]


def test_a_stop_and_the_end_of_the_run_are_written(scene: Scene) -> None:
    scene.journal.asked_to_stop(2)
    scene.supervisor.stop(2, 5.0)
    scene.look()
    scene.supervisor.ended("master/0", -15, 6.0)
    assert scene.supervisor.verdict is not None
    scene.journal.look(scene.supervisor.verdict)
    run_ends(scene.folder, scene.supervisor.verdict)
    assert [event for event in scene.news() if event[2] != "signal"] == [
        (None, None, "stop", "SIGINT to the launcher"),
        ("master/0", "n0", "end", "killed by SIGTERM"),
        (None, None, "run ends", "stopped by SIGINT"),
    ]


def test_the_last_reason_is_found_among_damaged_lines(scene: Scene) -> None:
    assert events.last_with_reason(scene.folder) is None
    scene.supervisor.ended("worker/0", 3, 5.0)
    scene.look()
    with events.path_of(scene.folder).open("a") as file:
        file.write('{"what": 5}\n[]\n{"time": "x", "what": "start", "reason": ""}\nhalf')
    last = events.last_with_reason(scene.folder)
    assert last is not None
    assert last.words() == "master/0 on n0: signal: SIGTERM: worker/0 on n1 failed: exit code 3"


def test_a_folder_that_cannot_be_written_hinders_no_job(tmp_path: Path) -> None:
    events.add(RunFolder(tmp_path / "absent"), [events.event("start")])
    assert events.last_with_reason(RunFolder(tmp_path / "absent")) is None
