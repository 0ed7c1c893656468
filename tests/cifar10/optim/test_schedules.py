"""Schedules by name; what each does is in tests/cifar10/optim/test_learning_rate.py."""

from collections.abc import Iterator

import pytest
import tensorflow.compat.v1 as tf

from cifar10.config import flags
from cifar10.optim import schedules
from cifar10.optim.schedules import ScheduleProgress, schedule


@pytest.fixture
def steep() -> Iterator[None]:
    @schedule("down to 0 at once")
    def steep(progress: ScheduleProgress) -> tf.Tensor:
        return (1.0 - progress.share) ** 4

    yield
    schedules.unregister("steep")


def test_a_flag_can_name_every_schedule_of_the_registry(steep: None) -> None:
    names = ["staged", "cosine", "linear", "triangular", "constant", "steep"]
    assert list(schedules.NAMES) == names
    for name in names:
        assert flags.parse(["--schedule", name]).schedule == name


def test_a_schedule_is_found_by_the_name_of_its_function(steep: None) -> None:
    progress = ScheduleProgress(share=tf.constant(0.5), epochs=tf.constant(3.0, tf.float64))
    assert float(schedules.factor("steep", progress)) == 0.0625
    assert float(schedules.factor("linear", progress)) == 0.5


def test_a_name_stands_for_one_schedule() -> None:
    with pytest.raises(ValueError, match="schedule linear exists already"):
        schedule("another")(schedules.linear)
