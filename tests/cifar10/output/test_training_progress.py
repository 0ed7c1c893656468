"""What training shows and keeps of its steps: each figure of the same steps once, despite kills."""

import json
import pathlib
import types
from typing import Any, Optional

import pytest
import tensorflow.compat.v1 as tf
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from cifar10.config.train_config import TrainConfig
from cifar10.output import training_progress as module
from cifar10.output.event_files import take_back, writer
from cifar10.output.metrics import Metrics
from cifar10.output.training_progress import TrainingProgress
from tests.cifar10.hooked import Clock, Shown, report

pytestmark = pytest.mark.usefixtures("own_event_files")


class Run:
    """Trains steps of 10 of 50 images, half a second each; their losses are 1, 2, 3, ...

    Args:
      monkeypatch: sets the clock.
      folder: gets rows, of each tenth step.
      first: the step from which the run continues.
      live: whether the line is that of a terminal.
      own_examples: the images of this process in a step, if others train, too.
      settings: further settings.
    """

    def __init__(
        self,
        monkeypatch: pytest.MonkeyPatch,
        folder: Optional[pathlib.Path] = None,
        first: int = 0,
        live: bool = False,
        own_examples: Optional[int] = None,
        **settings: Any,
    ) -> None:
        shown: Any = Shown(live, total_steps=100, total_epochs=20.0)
        place = {"log_dir": folder and str(folder), "summary_steps": 10}
        config = TrainConfig(**{"log_steps": 2, **place, **settings})
        params = types.SimpleNamespace(config=config, num_examples=50, own_examples=own_examples)
        self._first, self._folder, self.shown = first, folder, shown
        metrics = Metrics(str(folder)) if folder else None
        self.progress = TrainingProgress(shown, params, metrics)
        if folder:
            self.progress.go_on_after(first)
        self._clock = Clock(self.progress)
        monkeypatch.setattr(module, "time", self._clock)

    def train(
        self, steps: int, steps_of_others: int = 0, stood_before: tuple[int, ...] = ()
    ) -> list[Any]:
        """Trains, and returns what was shown; others take so many steps for each of ours."""
        for number in range(1, steps + 1):
            taken = report(self._first + number * (1 + steps_of_others), loss=number)
            self._clock.step(taken, number in stood_before)
        self.progress.finish()
        return self.shown.statuses

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The rows of metrics.jsonl, without what tells nothing of training."""
        assert self._folder
        rows = map(json.loads, (self._folder / "metrics.jsonl").read_text().splitlines())
        return [{k: v for k, v in row.items() if k not in ("wall_time", "split")} for row in rows]


def test_a_line_has_the_means_since_the_last_one_without_the_first_step(monkeypatch):
    run = Run(monkeypatch)
    first, second = run.train(5, stood_before=(3,))
    assert (first.step, first.epoch, first.loss, first.accuracy) == (3, 0.6, 2.5, 0.5)
    assert (first.learning_rate, first.images_per_sec, first.own_images_per_sec) == (0.1, 20, None)
    assert (second.step, second.loss, second.images_per_sec) == (5, 4.5, 20.0)
    assert run.progress.seconds == 2.5  # The clock stands in a pause.
    assert run.progress.steps == 5


def test_a_step_that_is_told_of_the_end_leaves_no_rate_to_go_by(monkeypatch):
    run = Run(monkeypatch)
    run.train(1)
    run._clock.step(report(1))
    run.progress.finish()
    (status,) = run.shown.statuses
    assert (status.images_per_sec, status.seconds_left) == (0.0, None)


def test_one_of_several_that_train_shows_the_jobs_speed_and_its_own(monkeypatch):
    (status,) = Run(monkeypatch, own_examples=10).train(3, steps_of_others=3)
    assert (status.step, status.epoch, status.loss) == (12, 2.4, 2.5)
    assert (status.images_per_sec, status.own_images_per_sec) == (80.0, 20.0)
    # 97 steps at 2 a second; 88 at 8 a second.
    assert status.seconds_left == 11.0
    assert Run(monkeypatch).train(3)[-1].seconds_left == 48.5


def test_what_others_train_during_a_validation_is_no_measure_of_speed(monkeypatch):
    # Step 4 starts a new measurement, as the first step did.
    found = Run(monkeypatch, own_examples=10).train(6, 1, stood_before=(4,))
    assert [(status.step, status.images_per_sec) for status in found] == [(6, 40.0), (12, 40.0)]
    # A process alone stands still as its clock does, and goes on measuring.
    found = Run(monkeypatch).train(6, stood_before=(4,))
    assert [status.step for status in found] == [3, 5, 6]


def test_a_live_line_is_drawn_more_often(monkeypatch):
    found = Run(monkeypatch, log_steps=4, live=True).train(9)
    assert [status.step for status in found] == [2, 3, 4, 5, 6, 7, 8, 9]


def test_without_log_steps_a_line_comes_by_the_length_of_the_run(monkeypatch):
    # A hundredth of 100 steps is one, but not within a second: every other step of half a second.
    assert [status.step for status in Run(monkeypatch, log_steps=None).train(7)] == [3, 5, 7]


# Rows and event files.


def test_what_is_taken_back_begins_with_the_step_itself(tmp_path):
    events, folder = writer(str(tmp_path)), str(tmp_path)

    def write(*steps: int) -> list[int]:
        value = tf.Summary.Value(tag="curve", simple_value=1.0)
        for step in steps:
            events.add_summary(tf.Summary(value=[value]), step)
        events.flush()
        return [event.step for event in EventAccumulator(folder).Reload().Scalars("curve")]

    assert write(1, 2, 3, 4) == [1, 2, 3, 4]
    take_back(folder, 3)
    assert write(3) == [1, 2, 3]


def events(folder: pathlib.Path) -> dict[str, list[tuple[int, float]]]:
    """The (step, value) of each curve in TensorBoard's files of training."""
    found = EventAccumulator(str(folder / "train")).Reload()
    tags = found.Tags()["scalars"]
    return {tag: [(event.step, event.value) for event in found.Scalars(tag)] for tag in tags}


def test_a_row_has_means_since_the_row_before_in_metrics_jsonl_and_in_tensorboard(
    monkeypatch, tmp_path
):
    run = Run(monkeypatch, tmp_path)
    run.train(24)
    rows = run.rows
    speed = {"accuracy": 0.5, "learning_rate": 0.1, "images_per_sec": 20.0}
    first = {"step": 1, "loss": 1.0, "accuracy": 0.5, "learning_rate": 0.1}
    assert rows == [
        {**first, "epoch": 0.2, "seconds": 0.5},
        {"step": 10, "loss": 6.0, **speed, "epoch": 2.0, "seconds": 5.0},
        {"step": 20, "loss": 15.5, **speed, "epoch": 4.0, "seconds": 10.0},
        {"step": 24, "loss": 22.5, **speed, "epoch": 4.8, "seconds": 12.0},
    ]
    found = events(tmp_path)
    assert sorted(found) == ["accuracy", "images_per_sec", "learning_rate", "loss"]
    for tag, curve in found.items():
        assert [step for step, _ in curve] == [row["step"] for row in rows if tag in row], tag
        assert [value for _, value in curve] == pytest.approx([r[tag] for r in rows if tag in r])


def test_the_seconds_of_a_run_that_goes_on_are_those_of_its_rows_and_more(monkeypatch, tmp_path):
    row = {"epoch": 0.0, "loss": 1.0, "accuracy": 0.5, "seconds": 7.0}
    Metrics(str(tmp_path)).add("train", 10, **row)
    run = Run(monkeypatch, tmp_path, first=10)
    run.train(10)
    assert [(row["step"], row["seconds"]) for row in run.rows] == [(10, 7.0), (20, 12.0)]


@pytest.mark.parametrize(
    ("first", "steps", "steps_of_others", "expected"),
    [
        (7, 18, 0, [10, 20, 25]),
        (10, 10, 0, [20]),
        (19, 2, 0, [20, 21]),
        # Own steps end at 3, 6, 9, ...: the one that passes 10 ends at 12.
        (0, 9, 2, [3, 12, 21, 27]),
    ],
)
def test_rows_are_of_step_1_of_multiples_and_of_the_last_step(
    monkeypatch, tmp_path, first, steps, steps_of_others, expected
):
    run = Run(monkeypatch, tmp_path, first)
    run.train(steps, steps_of_others)
    assert [row["step"] for row in run.rows] == expected
