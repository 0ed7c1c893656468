"""Learning curves: their training, their files, and when two of them agree."""

import dataclasses
import json
from pathlib import Path

import pytest

from benchmarks.convergence import cases
from benchmarks.convergence.agreement import check_comparable, compare, verdict
from benchmarks.convergence.curve import Curve, Images, SeedCurve
from benchmarks.convergence.cut_run import (
    Beginning,
    TrainingFailedError,
    read_beginning,
)
from benchmarks.errors import BenchmarkError
from tests.benchmarks.convergence.curves import DATA, curve, seed_curve

# Accuracies with mean .5 and standard deviation .01; three standard errors of the difference of
# two such sets are .0245.
COMMITTED = curve([seed_curve(accuracy) for accuracy in (0.49, 0.50, 0.51)])


@pytest.mark.parametrize(
    ("name", "steps"), [("resnet20", 441), ("fast", 21), ("airbench94", 41), ("resnet8", 201)]
)
def test_a_case_trains_a_number_of_steps_whatever_the_time(name: str, steps: int) -> None:
    assert cases.find(name).steps(20)[-1] == steps


def test_the_first_step_is_in_no_row() -> None:
    assert cases.find("resnet8").steps(3) == (11, 21, 31)


def test_a_curve_is_kept_with_all_that_it_depends_on(tmp_path: Path) -> None:
    COMMITTED.save(tmp_path / "a" / "b.json")
    assert Curve.load(tmp_path / "a" / "b.json") == COMMITTED
    content = json.loads((tmp_path / "a" / "b.json").read_text())
    assert content["n"] == 3
    assert content["versions"]["tensorflow"] == "2.15.1"
    assert content["data"] == DATA
    assert content["seeds"]["3"]["accuracy"] == [0.51] * 8


def test_a_loss_that_is_not_finite_is_a_failure() -> None:
    row = {"step": 11, "loss": float("nan"), "accuracy": 0.1, "learning_rate": 0.1}
    with pytest.raises(TrainingFailedError, match="must be finite"):
        SeedCurve.of(Beginning((row,), {"loss": 2.0, "accuracy": 0.1}))


def test_rows_up_to_the_cut_are_taken_and_later_ones_left(tmp_path: Path) -> None:
    rows = [{"step": step, "loss": 2.0} for step in (11, 21, 24)]
    history = {"train": rows, "validation": [{"step": 21, "loss": 3.0}, {"step": 24}]}
    (tmp_path / "history.json").write_text(json.dumps(history))
    found = read_beginning(tmp_path / "history.json", (11, 21))
    assert found == Beginning((rows[0], rows[1]), {"step": 21, "loss": 3.0})
    with pytest.raises(BenchmarkError, match="31 steps .* ended at step 24: fewer --rows"):
        read_beginning(tmp_path / "history.json", (11, 21, 31))


def test_a_curve_agrees_with_itself() -> None:
    agrees, text = verdict(COMMITTED, COMMITTED)
    assert agrees
    assert text.startswith("resnet8, synthetic, fp32: agrees (seeds 1, 2, 3, kernels own; ")


def test_means_may_differ_by_three_standard_errors() -> None:
    def differing(shift: float) -> list[str]:
        new = curve([seed_curve(accuracy + shift) for accuracy in (0.49, 0.50, 0.51)])
        return [point.what for point in compare(new, COMMITTED) if not point.agrees]

    assert differing(0.024) == differing(-0.024) == []
    assert differing(0.025) == [
        "training accuracy of steps 2 to 21",
        "training accuracy of steps 22 to 41",
        "training accuracy of steps 42 to 61",
        "training accuracy of steps 62 to 81",
    ]


def test_curves_without_spread_may_differ_by_the_floor() -> None:
    flat = curve([seed_curve(0.5)] * 3)
    allowed = {point.what.partition(" of")[0]: point.allowed for point in compare(flat, flat)}
    assert allowed["training accuracy"] == 0.01
    assert allowed["training loss"] == pytest.approx(0.02)
    assert allowed["validation accuracy after step 81"] == 0.02
    assert allowed["validation loss after step 81"] == pytest.approx(0.05)


def test_one_seed_is_held_against_the_spread_of_the_committed_ones() -> None:
    (point,) = (
        p for p in compare(curve([seed_curve(0.5)]), COMMITTED) if "cy of steps 2 " in p.what
    )
    assert point.allowed == pytest.approx(3 * 0.01 * (1 + 1 / 3) ** 0.5)


def test_seeds_that_are_close_by_chance_allow_what_is_usual() -> None:
    begins_alike = [
        dataclasses.replace(one, accuracy=(0.1, 0.1, *one.accuracy[2:]))
        for one in COMMITTED.seeds.values()
    ]
    first, *_ = (
        point
        for point in compare(curve(begins_alike), curve(begins_alike))
        if point.what.startswith("training accuracy")
    )
    # The root mean square of 0, .01, .01 and .01.
    assert first.allowed == pytest.approx(3 * 0.01 * 0.75**0.5 * (2 / 3) ** 0.5)


def test_another_learning_rate_differs_at_once() -> None:
    new = curve([seed_curve(accuracy, rate=0.101) for accuracy in (0.49, 0.50, 0.51)])
    agrees, text = verdict(new, COMMITTED)
    assert not agrees
    assert "differs at 1 of 11 points (seeds 1, 2, 3, kernels own; committed seeds" in text
    assert "learning rate of step 11: 0.101, committed 0.1, allowed difference 1e-05" in text


def test_a_validation_that_differs_is_seen() -> None:
    new = curve([seed_curve(accuracy, validation=0.7) for accuracy in (0.49, 0.50, 0.51)])
    assert [point.what for point in compare(new, COMMITTED) if not point.agrees] == [
        "validation accuracy after step 81"
    ]


def test_a_shorter_curve_is_held_against_the_beginning_of_the_committed_one() -> None:
    short = dataclasses.replace(
        curve([seed_curve(0.5)]),
        steps=(11, 21),
        seeds={1: SeedCurve((1.0,) * 2, (0.5,) * 2, (0.1,) * 2, 9.0, 0.1)},
    )
    points = compare(short, COMMITTED)
    assert all(point.agrees for point in points)
    assert [point.what for point in points if "validation" in point.what] == []


def test_curves_of_other_steps_or_epochs_are_not_compared() -> None:
    case, images = cases.find("resnet8"), Images("synthetic", DATA)
    assert check_comparable(case, 8, COMMITTED, images) == []
    with pytest.raises(BenchmarkError, match="8 rows up to step 81 of 64 images, and this one 9"):
        check_comparable(case, 9, COMMITTED, images)
    fewer = {**DATA, "records": {"train": 90}}
    with pytest.raises(BenchmarkError, match="9,000 training images, got 90; choose another"):
        check_comparable(case, 8, COMMITTED, Images("synthetic", fewer))
    (note,) = check_comparable(
        case, 8, COMMITTED, Images("synthetic", {**DATA, "train_sha256": "d"})
    )
    assert "is of other images" in note
