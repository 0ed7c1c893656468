"""Figures in JSON files have the digits that people write."""

import math

import numpy as np
import pytest

from cifar10.output.digits import rounded, rounded_figures


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (float(np.float32(0.1)), "0.1"),
        (float(np.float32(0.918)), "0.918"),
        (2.3025850929, "2.30259"),
        (1234.5678901, "1234.57"),
        (3.0970e-06 / 3, "1.03233e-06"),
        (0.0, "0.0"),
    ],
)
def test_a_number_has_at_most_six_significant_digits(value: float, written: str) -> None:
    assert repr(rounded(value)) == written


def test_seconds_have_milliseconds_however_many_they_are() -> None:
    figures = {"seconds": 123456.78912, "training_seconds": 0.00049, "loss": 123456.78912}
    assert rounded_figures(figures) == {
        "seconds": 123456.789,
        "training_seconds": 0.0,
        "loss": 123457.0,
    }


def test_what_is_no_finite_float_stays_as_it_is() -> None:
    figures = {"step": 12_345_678, "best": None, "status": "completed", "loss": math.inf}
    assert rounded_figures(figures) == figures
