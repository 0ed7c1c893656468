"""How long a run takes: its amount before it starts, and an estimate after its first steps."""

import types
from typing import Optional

import pytest

from cifar10.config.train_config import TrainConfig
from cifar10.run.hooks.progress import Duration, StepClock
from cifar10.run.job import describe_amount
from tests.cifar10.hooked import report


class Clock(StepClock):
    """A clock that a test sets."""

    now = 0.0

    @property
    def seconds(self) -> float:
        return self.now


def job(total_steps: int, max_minutes: Optional[float] = None) -> types.SimpleNamespace:
    return types.SimpleNamespace(
        total_steps=total_steps,
        num_examples=45_000,
        params=types.SimpleNamespace(examples_per_step=128),
        config=TrainConfig(max_minutes=max_minutes),
    )


def told(total_steps: int, *steps: tuple[float, int], max_minutes: Optional[float] = None):
    """Returns what is said of steps of 128 images, each a time in seconds and a step."""
    clock, lines = Clock(), list[str]()
    duration = Duration(lines.append, clock, job(total_steps, max_minutes))  # type: ignore[arg-type]
    for clock.now, step in steps:
        duration.add(report(step, each=128))
    return lines


def test_a_long_run_says_its_amount_before_it_starts():
    assert describe_amount(job(80_000), 0) == (
        "80,000 steps are 228 epochs, or 10,240,000 images; how long they take on this machine is "
        "printed after the first steps"
    )


@pytest.mark.parametrize(
    ("total_steps", "start_step", "max_minutes"),
    [(3_520, 0, None), (80_000, 79_000, None), (80_000, 0, 5.0)],
    ids=["ten epochs", "nearly over", "with a time limit"],
)
def test_a_run_that_is_not_long_does_not(total_steps, start_step, max_minutes):
    assert describe_amount(job(total_steps, max_minutes), start_step) is None


def test_after_ten_seconds_of_steps_a_long_run_says_how_long_it_takes():
    # The first step takes 30 s, the others a third of a second each.
    steps = [(30.0, 1), *((30.0 + i / 3, 1 + i) for i in range(1, 60))]
    assert told(80_000, *steps[:30]) == []
    assert told(80_000, *steps) == [
        "the remaining 79,969 steps take about 7h24m at 384 images/s, validations not included; "
        "Ctrl-C saves, and the same command continues"
    ]


def test_a_run_of_minutes_and_one_with_a_time_limit_say_nothing():
    steps = [(0.0, 1), (10.0, 31), (20.0, 61)]
    assert told(1_800, *steps) == []
    assert told(80_000, *steps, max_minutes=5.0) == []


def test_what_was_promised_is_said_of_a_fast_run_too():
    # 10,240,000 images in four minutes.
    lines = told(80_000, (1.0, 1), (11.0, 3_201))
    assert lines[0].startswith("the remaining 76,799 steps take about 4m00s at 40,960 images/s")


def test_a_step_of_more_than_ten_seconds_is_enough():
    assert told(101, (0.0, 1), (60.0, 2))[0].startswith("the remaining 99 steps take about 1h39m")
