"""Checkpoints: which steps have one, and what comes before and after each."""

import math
import pathlib
from typing import Any, Optional

import pytest
import tensorflow.compat.v1 as tf

from cifar10.errors import Stopped, TrainingError
from cifar10.host import activity
from cifar10.host.signals import StopRequest
from cifar10.output import checkpoints
from cifar10.output.history import History
from cifar10.run.goals import Goals
from cifar10.run.hooks.progress import StepClock
from cifar10.run.hooks.saving import SaverHook, Saving
from cifar10.run.hooks.step_probe import EvaluationHook
from cifar10.run.hooks.training import WorkerHook
from tests.cifar10.hooked import job_in, parts, stopped, train
from tests.cifar10.tf_internals.private import add_listener


class Saved:
    """A saver of every fourth step, and what it calls."""

    def __init__(self, folder: pathlib.Path, every: int = 4, **settings: Any) -> None:
        self.calls: list[str] = []
        self.clock, self.stop, self.folder = StepClock(), StopRequest(), folder
        self.activity = activity.Activity()
        self.saving = Saving(
            self.activity, self.clock, self.stop, str(folder), (self._before,), self._last
        )
        self.hook = SaverHook(str(folder), every, str(folder), self.saving, **settings)

    def _before(self) -> None:
        assert self.activity.phase == activity.SAVING
        self.calls.append(f"before {len(list(self.folder.glob('model.ckpt-*.index'))) + 1}")

    def _last(self) -> None:
        self.calls.append("last")

    def train(self, total_steps: int, **settings: Any) -> int:
        """Trains under the hook of a trainer, which ends at `total_steps`."""
        job, stop, probe, progress = parts(job_in(self.folder, total_steps))
        trainer = WorkerHook(job, stop, probe, progress, None, True)
        return train(trainer, self.hook, **settings)


class Listener(tf.train.CheckpointSaverListener):
    """Notes each checkpoint, and whether the session was at its end; may add a validation."""

    def __init__(self, saved: Saved, rows: Optional[list[dict[str, Any]]] = None) -> None:
        self._saving, self._rows = saved.saving, rows
        self.steps: list[tuple[int, bool]] = []
        add_listener(saved.hook, self)

    def after_save(self, session: Any, global_step_value: int) -> None:
        step = int(global_step_value)
        self.steps.append((step, self._saving.at_end))
        if self._rows is not None:
            accuracy = 0.1 * (len(self._rows) + 1)
            self._rows.append({"step": step, "epoch": 1.0, "loss": 1.0, "accuracy": accuracy})


@pytest.mark.parametrize("total", [8, 9])
def test_the_last_checkpoint_is_left_to_the_end(tmp_path, total):
    saved = Saved(tmp_path)
    listener = Listener(saved)
    assert saved.train(total) == total
    before = [(0, False), (4, False)] + [(8, False)] * (total == 9)
    assert listener.steps == [*before, (total, True)]
    assert checkpoints.latest_step(str(tmp_path)) == total


def test_only_a_step_with_a_checkpoint_asks_for_the_global_step_once_more(tmp_path, monkeypatch):
    steps = []
    save = tf.train.CheckpointSaverHook.after_run

    def note(hook: Any, run_context: Any, run_values: Any) -> None:
        steps.append(run_values.results)
        save(hook, run_context, run_values)

    monkeypatch.setattr(tf.train.CheckpointSaverHook, "after_run", note)
    Saved(tmp_path).train(11)
    assert steps == [4, 8]


def test_what_comes_before_a_checkpoint_comes_before_its_files_and_the_end_is_told_once(tmp_path):
    saved = Saved(tmp_path)
    saved.train(9)
    assert saved.calls == ["before 1", "before 2", "before 3", "before 4", "last"]


def test_a_checkpoint_stops_the_clock(tmp_path):
    saved = Saved(tmp_path)
    saved.clock.run()
    saved.train(1)
    assert saved.clock.run() is True  # It stood.
    assert saved.activity.phase == activity.BETWEEN


def test_a_signal_leaves_validation_out(tmp_path):
    saved = Saved(tmp_path)
    saved.saving._stop = stopped()
    listener = Listener(saved)
    with pytest.raises(Stopped):
        saved.train(3)
    assert listener.steps == []
    assert "last" not in saved.calls


@pytest.mark.parametrize("weight", [math.nan, math.inf])
def test_weights_that_are_not_finite_are_not_saved(tmp_path, weight):
    saved = Saved(tmp_path, every=1)
    with pytest.raises(TrainingError, match="a weight is NaN or infinite at step 3; nothing of "):
        saved.train(9, weight=lambda step: tf.where(step < 3, 1.0, weight))
    assert checkpoints.latest_step(str(tmp_path)) == 2
    assert not list(tmp_path.glob("model.ckpt-3*"))


def test_the_last_checkpoint_is_the_one_whose_validation_reaches_a_goal(tmp_path):
    rows: list[dict[str, Any]] = []
    said: list[str] = []
    config = job_in(tmp_path, stop_at_accuracy=0.5).config
    goals = Goals(config, History(None, validation=rows), False, said.append)
    saved = Saved(tmp_path, every=2, is_enough=goals.are_reached)
    Listener(saved, rows)
    # The checkpoint of step 0 has the first row, that of step 8 the fifth.
    assert saved.train(1_000) == 8
    assert [row["step"] for row in rows] == [0, 2, 4, 6, 8]
    assert checkpoints.latest_step(str(tmp_path)) == 8
    assert said == [
        "training ends: validation accuracy 0.5000 at step 8 has reached --stop-at-accuracy 0.5"
    ]
    assert saved.calls[-1] == "last"


def test_a_signal_breaks_an_evaluation_off(tmp_path):
    noted = activity.Activity()
    with pytest.raises(Stopped):
        train(EvaluationHook(noted, stopped()))
    assert train(EvaluationHook(noted, StopRequest())) == 20
    assert noted.phase == activity.EVALUATION
