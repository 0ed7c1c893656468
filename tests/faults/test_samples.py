"""Slopes of memory and descriptors."""

import os

import pytest

from tests.faults.samples import Series, Settled, least_squares
from tests.faults.soak import grown


def test_the_slope_of_a_line_is_found() -> None:
    assert least_squares([0, 1, 2, 3], [5, 7, 9, 11]) == pytest.approx(2.0)


def test_points_beside_a_line_have_the_slope_of_the_best_line() -> None:
    assert least_squares([0, 1, 2], [0, 3, 0]) == pytest.approx(0.0)
    assert least_squares([0, 1, 2], [0, 0, 3]) == pytest.approx(1.5)


def test_one_point_has_no_slope() -> None:
    assert least_squares([4], [7]) == 0.0


def test_the_first_half_does_not_count() -> None:
    times = [0.0, 30.0, 60.0, 90.0, 120.0]
    series = Series("ps/0", 1, times, [0.0, 50.0, 100.0, 101.0, 102.0], [9.0, 40.0, 8.0, 8.0, 8.0])
    found = series.settled(60)
    assert found is not None
    assert found.secs == 60.0
    assert found.memory == 102.0
    assert found.memory_slope == pytest.approx(2.0)
    assert found.descriptors == 8
    assert found.descriptors_slope == pytest.approx(0.0)


def test_a_process_that_was_watched_for_too_short_has_no_slope() -> None:
    assert Series("ps/0", 1, [0.0, 60.0, 90.0], [1.0] * 3, [1.0] * 3).settled(60) is None
    assert Series("ps/0", 1).settled(60) is None


def test_a_sample_of_this_process_has_its_memory_and_descriptors() -> None:
    series = Series("ps/0", os.getpid())
    series.sample(1.5)
    assert series.times == [1.5]
    assert series.memory[0] > 1
    assert series.descriptors[0] >= 3


def test_a_process_that_has_ended_gives_no_sample() -> None:
    series = Series("ps/0", 2**22 + 1)
    series.sample(1.5)
    assert series.times == []


def settled(memory_slope: float, descriptors_slope: float, secs: float) -> Settled:
    return Settled("ps/0", 1, secs, 500.0, memory_slope, 40, descriptors_slope)


def test_a_process_that_grows_is_named() -> None:
    assert grown(settled(5.0, 0.0, 300)) == ["ps/0: memory grows by 5.00 MiB a minute"]
    assert grown(settled(0.0, 2.0, 300)) == ["ps/0: descriptors grow by 2.00 a minute"]


def test_a_process_that_grows_slowly_or_by_little_is_not() -> None:
    assert grown(settled(3.9, 0.9, 3000)) == []
    assert grown(settled(5.0, 2.0, 60)) == []
