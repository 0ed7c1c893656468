"""What training shows and keeps of its steps: means, speeds and time left."""

import time
import types
from typing import Optional

from cifar10.config.train_config import TrainConfig
from cifar10.output.history import History
from cifar10.run.hooks.progress import Progress, StepClock
from tests.cifar10.hooked import Shown, SteppedClock, report


class Run:
    """Trains steps of 10 images whose losses are 1, 2, 3, ...; accuracy .5, rate .1."""

    def __init__(
        self,
        own_examples: Optional[int] = None,
        log_steps: Optional[int] = 2,
        live: bool = False,
        total_steps: int = 100,
    ) -> None:
        self.shown, self.clock, self.history = Shown(live), SteppedClock(), History(None)
        job = types.SimpleNamespace(
            total_steps=total_steps,
            num_examples=50,
            own_examples=own_examples,
            config=TrainConfig(log_steps=log_steps),
        )
        self.progress = Progress(self.shown, self.history, job)  # type: ignore[arg-type]
        self.progress.clock = self.clock

    def train(self, steps: int, steps_of_others: int = 0) -> int:
        """Trains; meanwhile, other replicas make so many steps for each of ours."""
        for number in range(1, steps + 1):
            self.progress.step_begins()
            self.progress.add(report(number * (1 + steps_of_others), loss=number))
        self.progress.finish()
        return self.progress.steps


def test_a_clock_counts_while_it_runs(monkeypatch):
    now = [7.0]
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])
    clock = StepClock(100.0)
    for is_running, seconds in ((False, 100.0), (True, 102.0), (False, 102.0), (True, 104.0)):
        if is_running:
            assert clock.run() is True
            assert clock.run() is False  # It runs already.
        now[0] += 2.0
        assert clock.seconds == seconds
        clock.pause()
        assert clock.seconds == seconds


def test_a_row_has_the_means_since_the_last_one_without_the_first_step():
    run = Run()
    assert run.train(5) == 5
    assert run.history.train == [
        {
            "step": 3,
            "epoch": 0.6,
            "loss": 2.5,
            "accuracy": 0.5,
            "learning_rate": 0.1,
            "images_per_sec": 20.0,
            "seconds": 1.5,
        },
        {
            "step": 5,
            "epoch": 1.0,
            "loss": 4.5,
            "accuracy": 0.5,
            "learning_rate": 0.1,
            "images_per_sec": 20.0,
            "seconds": 2.5,
        },
    ]


def test_the_last_steps_have_a_row_too():
    run = Run()
    run.train(4)
    assert [row["step"] for row in run.history.train] == [3, 4]


def test_time_left_goes_by_the_steps_of_the_whole_job():
    alone, one_of_four = Run(), Run(own_examples=10)
    alone.train(3)
    one_of_four.train(3, steps_of_others=3)
    # 97 steps at 2 a second; 88 at 8 a second.
    assert alone.shown.statuses[-1].seconds_left == 48.5
    assert one_of_four.shown.statuses[-1].seconds_left == 11.0


def test_one_of_several_that_train_shows_the_jobs_speed_and_its_own():
    run = Run(own_examples=10)
    run.train(3, steps_of_others=3)
    (status,) = run.shown.statuses
    assert (status.step, status.epoch, status.loss) == (12, 2.4, 2.5)
    assert status.images_per_sec == 80.0
    assert status.own_images_per_sec == 20.0
    (row,) = run.history.train
    assert (row["images_per_sec"], row["own_images_per_sec"]) == (80.0, 20.0)


def test_what_others_train_during_a_validation_is_no_measure_of_speed():
    # Before step 4 the clock stood; step 4 starts a new measurement, as the first step did.
    run = Run(own_examples=10, log_steps=2)
    run.clock.stood_before = {4}
    run.train(6, steps_of_others=1)
    assert [(row["step"], row["images_per_sec"]) for row in run.history.train] == [
        (6, 40.0),
        (12, 40.0),
    ]
    # A process alone stands still as its clock does, and goes on measuring.
    alone = Run(log_steps=2)
    alone.clock.stood_before = {4}
    alone.train(6)
    assert [row["step"] for row in alone.history.train] == [3, 5, 6]


def test_a_live_line_is_drawn_more_often_than_rows_are_kept():
    run = Run(log_steps=4, live=True)
    run.train(9)
    assert [status.step for status in run.shown.statuses] == [2, 3, 4, 5, 6, 7, 8, 9]
    assert [row["step"] for row in run.history.train] == [5, 9]


def test_without_log_steps_a_row_comes_by_the_length_of_the_run():
    # A hundredth of 100 steps is one, but not within a second: every other step of half a second.
    run = Run(log_steps=None)
    run.train(7)
    assert [row["step"] for row in run.history.train] == [3, 5, 7]
