"""`attach` to a job that goes on when its launcher ends, as one of Slurm may."""

import argparse
import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from launch.cluster.host_list import on_this_machine
from launch.cluster.tasks import make_job
from launch.record.outcome import Outcome
from launch.record.run_folder import RunFolder
from launch.verbs import attach


def test_the_tasks_logs_are_shown_when_the_launcher_ends_before_the_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = RunFolder.create(tmp_path, make_job(on_this_machine(1, 1)))
    folder.launcher_log.write_text("[master/0 node7] early\nfollowed no more\n")
    log = folder.log_path("master/0")
    log.write_text("early\n")
    states = [(os.getpid(), ""), (None, "job 7 runs"), (None, "job 7 runs"), (None, "")]

    def late() -> None:
        log.write_text("early\nlate\n")

    def end() -> None:
        folder.write_end(Outcome(0, "master/0 is done"))

    between: list[Callable[[], object]] = [lambda: None, late, end]

    def next_state(_: float) -> None:
        states.pop(0)
        between.pop(0)()

    monkeypatch.setattr(RunFolder, "launcher_pid", lambda _: states[0][0])
    monkeypatch.setattr(attach, "without_launcher", lambda _: states[0][1])
    monkeypatch.setattr(time, "sleep", next_state)
    words = argparse.Namespace(state_dir=str(tmp_path), run=None, lines=True)
    assert attach.attach(words) == 0
    assert capfd.readouterr().out.splitlines()[2:] == [
        "[master/0 node7] early",
        "followed no more",
        "[master/0 localhost] late",
        "master/0 is done",
    ]
