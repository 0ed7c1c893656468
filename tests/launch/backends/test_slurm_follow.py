"""A Slurm job whose state changes between a question to Slurm and what follows from the answer."""

import io
import itertools
import signal
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from launch.backends.slurm import backend, commands
from launch.backends.slurm.backend import Slurm
from launch.backends.slurm.commands import JobState
from launch.backends.slurm.follow import Follower
from launch.cluster.tasks import make_job
from launch.errors import HostError, LaunchError
from launch.record.outcome import Cause, Outcome
from launch.record.run_folder import RunFolder
from launch.screen.display import Display
from tests.launch.backends.samples import slurm_cluster
from tests.launch.launcher import signals_once


class Controller:
    """A stand-in for slurmctld with one job; a test sets the job's state."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.state = "PENDING"
        self.requests: list[str] = []
        self.after: dict[str, str] = {}  # request -> the state that it leads to
        self.refuses = ""
        monkeypatch.setattr(commands, "show", lambda job: JobState(self.state))
        monkeypatch.setattr(commands, "jobs_named", lambda name: self.jobs())
        for name in ("cancel", "ask_to_end", "forbid_requeue"):
            monkeypatch.setattr(commands, name, lambda job, name=name: self.take(name))

    def jobs(self) -> dict[str, JobState]:
        state = JobState(self.state)
        return {} if state.is_over else {"7": state}

    def take(self, request: str) -> None:
        self.requests.append(request)
        self.state = self.after.get(request, self.state)
        if self.refuses:
            raise LaunchError(self.refuses)


class Scene:
    """A launcher that follows the job, with a clock that the test moves on."""

    def __init__(self, folder: Path, slurm: Controller) -> None:
        self.slurm, self.folder, self.screen = slurm, RunFolder(folder), io.StringIO()
        self.display = Display(self.screen, live=False)
        self.follower = Follower("7", make_job(slurm_cluster()), self.folder, self.display)
        self.now, self.stops = 0.0, list[int]()
        self.outcome: Any = None

    def steps(self, secs: float) -> None:
        until = self.now + secs
        while self.now < until and self.outcome is None:
            self.outcome = self.follower.step(self.now, self.stops)
            self.now += 0.2

    def job_writes(self, time: float, **fields: Any) -> None:
        row = {"task": "master/0", "host": "m1", "state": "running", "step": ""}
        status = {"time": time, "exit_code": None, "reason": None, "cause": None}
        self.folder.write_status(
            {**status, "tasks": [{**row, "images_per_sec": "", "last": ""}], **fields}
        )


@pytest.fixture
def slurm(monkeypatch: pytest.MonkeyPatch) -> Controller:
    return Controller(monkeypatch)


@pytest.fixture
def scene(tmp_path: Path, slurm: Controller) -> Any:
    scene = Scene(tmp_path, slurm)
    yield scene
    scene.display.close()


def test_the_status_of_a_job_that_runs_is_not_replaced_while_slurm_calls_it_pending(
    scene: Scene,
) -> None:
    scene.steps(30)
    assert scene.folder.status()["tasks"][0]["state"] == "waiting"
    scene.job_writes(1.0)
    scene.steps(5)
    assert scene.folder.status()["time"] == 1.0


def test_the_end_of_a_job_is_kept_though_slurm_calls_it_pending(
    scene: Scene, slurm: Controller
) -> None:
    scene.steps(30)
    scene.job_writes(2.0, exit_code=3, reason="worker/0 on m2 failed: exit code 3")
    scene.steps(5)
    slurm.state = "FAILED"
    scene.steps(60)
    assert isinstance(scene.outcome, Outcome)
    assert scene.outcome.exit_code == 3
    assert scene.folder.status()["reason"] == "worker/0 on m2 failed: exit code 3"


def test_a_job_that_its_user_stops_says_what_it_saved(scene: Scene, slurm: Controller) -> None:
    slurm.state = "RUNNING"
    scene.steps(1)
    scene.stops.append(signal.SIGINT)
    scene.steps(1)
    scene.job_writes(2.0, exit_code=143, reason="told", details=["saved output/model.ckpt-3"])
    slurm.state = "FAILED"
    scene.steps(60)
    assert scene.outcome.reason == "stopped by SIGINT"
    assert scene.outcome.details == ("saved output/model.ckpt-3",)


def test_a_job_that_has_just_started_saves_at_ctrl_c(scene: Scene, slurm: Controller) -> None:
    scene.steps(60)  # so that the next question would be seconds away
    slurm.state = "RUNNING"
    scene.stops.append(signal.SIGINT)
    scene.steps(5)
    assert slurm.requests == ["ask_to_end"]


def test_a_job_that_has_written_saves_at_ctrl_c_though_slurm_calls_it_pending(
    scene: Scene, slurm: Controller
) -> None:
    scene.steps(5)
    scene.job_writes(1.0)
    scene.stops.append(signal.SIGINT)
    slurm.after = {"ask_to_end": "COMPLETED"}
    scene.steps(5)
    assert slurm.requests == ["ask_to_end"]


def test_a_stop_during_a_requeue_cancels_the_job_in_the_queue(
    scene: Scene, slurm: Controller
) -> None:
    slurm.state, slurm.after = "RUNNING", {"cancel": "CANCELLED"}
    scene.steps(1)
    scene.job_writes(1.0)
    scene.steps(1)
    scene.stops.append(signal.SIGINT)
    scene.steps(1)
    slurm.state = "COMPLETING"
    scene.steps(20)
    slurm.state = "PENDING"
    scene.steps(20)
    assert slurm.requests == ["ask_to_end", "cancel"]
    assert scene.outcome.exit_code == 130


def test_a_job_that_was_requeued_unseen_is_asked_again(scene: Scene, slurm: Controller) -> None:
    slurm.state = "RUNNING"
    scene.stops.append(signal.SIGINT)
    scene.steps(1)
    for slurm.state in ("COMPLETING", "RUNNING"):
        scene.steps(20)
    assert slurm.requests == ["ask_to_end", "ask_to_end"]


def test_a_lost_terminal_ends_only_the_following(scene: Scene, slurm: Controller) -> None:
    slurm.state = "RUNNING"
    scene.steps(1)
    scene.job_writes(1.0)
    scene.stops.append(signal.SIGHUP)
    scene.steps(1)
    assert scene.outcome.exit_code == 129
    assert scene.outcome.reason == "not followed any more; Slurm job 7 goes on"
    assert slurm.requests == []
    assert scene.folder.status()["exit_code"] is None


def test_a_terminal_that_is_lost_after_ctrl_c_does_not_promise_that_the_job_goes_on(
    scene: Scene, slurm: Controller
) -> None:
    slurm.state = "RUNNING"
    scene.stops += [signal.SIGINT, signal.SIGHUP]
    scene.steps(1)
    assert scene.outcome.reason == "not followed any more; Slurm job 7 is asked to end"
    assert slurm.requests == ["ask_to_end"]


def test_a_second_ctrl_c_asks_until_the_job_ends_as_it_may_miss_a_signal(
    scene: Scene, slurm: Controller
) -> None:
    slurm.state = "RUNNING"
    scene.stops += [signal.SIGINT, signal.SIGINT]
    scene.steps(3)
    assert slurm.requests == ["ask_to_end"] * 2
    scene.steps(4)
    assert slurm.requests == ["ask_to_end"] * 3


def test_a_first_ctrl_c_asks_once(scene: Scene, slurm: Controller) -> None:
    slurm.state = "RUNNING"
    scene.stops.append(signal.SIGINT)
    scene.steps(30)
    assert slurm.requests == ["ask_to_end"]


def test_a_script_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    script = tmp_path / "cifar10.sbatch"
    script.symlink_to("/dev/full")
    with pytest.raises(HostError) as caught:
        Slurm().run(
            make_job(slurm_cluster()), RunFolder(tmp_path), Display(io.StringIO(), live=False)
        )
    words = "No space left on device; --state-dir names another place"
    assert str(caught.value) == f"{script}: {words}"


def tool(folder: Path, name: str, text: str) -> None:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(f"#!/bin/sh\n{text}\n")
    (folder / name).chmod(0o755)


@pytest.mark.parametrize(
    ("is_submitted", "before"),
    [(False, []), (True, [signal.SIGHUP])],  # SIGHUP does not end sbatch
)
def test_a_signal_ends_sbatch_at_once_and_the_job_that_it_may_have_submitted(
    is_submitted: bool, before: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tools, job, cancelled = tmp_path / "tools", tmp_path / "job", tmp_path / "cancelled"
    tool(tools, "sbatch", f"echo '7|PENDING||None' > {job}; exec sleep 600")
    tool(tools, "squeue", f"cat {job} 2>/dev/null; true")
    tool(tools, "scontrol", "true")
    tool(tools, "scancel", f"rm {job}; echo $1 > {cancelled}")
    monkeypatch.setenv("PATH", str(tools), prepend=":")
    (tmp_path / "run").mkdir()
    folder, screen = RunFolder(tmp_path / "run"), io.StringIO()

    def is_asked() -> bool:
        if not job.exists():
            return False
        if not is_submitted:
            job.unlink()
        return True

    display, began = Display(screen, live=False), time.monotonic()
    with signals_once(is_asked, *before, signal.SIGINT):
        outcome = Slurm().run(make_job(slurm_cluster()), folder, display)
    display.close()
    assert time.monotonic() - began < 20
    assert outcome == Outcome(130, "stopped by SIGINT before sbatch answered", cause=Cause.USER)
    assert folder.status()["exit_code"] == 130
    assert cancelled.exists() == is_submitted
    words = "Slurm job 7: cancelled; it was PENDING\n" if is_submitted else ""
    asked = "asking Slurm whether sbatch has submitted a job; a second signal leaves that to clean"
    assert screen.getvalue() == f"{asked} --run run\n{words}"


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch, slurm: Controller) -> list[str]:
    """The states that the job gets one after the other, while `stop` or `clean` waits."""
    states: list[str] = []
    seconds = itertools.count(step=3)

    def sleep(secs: float) -> None:
        slurm.state = states.pop(0) if states else slurm.state

    clock = SimpleNamespace(sleep=sleep, monotonic=lambda: float(next(seconds)))
    monkeypatch.setattr(backend, "time", clock)
    return states


def test_clean_of_a_job_that_is_being_requeued_leaves_none_that_starts_later(
    slurm: Controller, at_once: list[str]
) -> None:
    slurm.state, slurm.after = "RUNNING", {"cancel": "COMPLETING"}
    at_once += ["COMPLETING", *["PENDING"] * 4, "CANCELLED"]  # while the tasks of the job end
    assert Slurm().clean({"run": "run7"}) == ["Slurm job 7: cancelled; it was RUNNING"]
    assert slurm.requests[:3] == ["forbid_requeue", "cancel", "cancel"]
    assert at_once == []


def test_clean_of_a_job_that_ends_meanwhile_is_no_error(
    slurm: Controller, at_once: list[str]
) -> None:
    slurm.state, slurm.refuses = "RUNNING", "scancel: Job/step already completing or completed"
    at_once += ["COMPLETED"]
    assert Slurm().clean({"run": "run7"}) == ["Slurm job 7: cancelled; it was RUNNING"]


def test_a_job_that_is_requeued_while_it_is_stopped_is_cancelled(
    slurm: Controller, at_once: list[str]
) -> None:
    slurm.state, slurm.after = "RUNNING", {"cancel": "CANCELLED"}
    at_once += ["COMPLETING", "PENDING"]
    Slurm().stop({"run": "run7"}, now=False)
    assert slurm.requests == ["ask_to_end", "cancel"]
