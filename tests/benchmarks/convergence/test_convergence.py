"""Learning curves: their training, their files, and when two of them agree."""

import dataclasses
import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from PIL import Image

from benchmarks.convergence import cases, picture
from benchmarks.convergence.agreement import check_comparable, compare, verdict
from benchmarks.convergence.curve import Curve, Images, SeedCurve
from benchmarks.convergence.cut_run import (
    Beginning,
    TrainingFailedError,
    read_beginning,
    train_beginning,
)
from benchmarks.convergence.table import curves_table
from benchmarks.errors import BenchmarkError
from cifar10.config.recipes import RECIPES
from testbeds.processes import ROOT
from tests.benchmarks.convergence.curves import CONDITIONS, DATA, curve, seed_curve
from tests.cifar10.program import make_records

# Accuracies with mean .5 and standard deviation .01; three standard errors of the difference of
# two such sets are .0245.
COMMITTED = curve([seed_curve(accuracy) for accuracy in (0.49, 0.50, 0.51)])

NO_SEEDS = (
    '{"case": "a", "images": "b", "precision": "fp32", "batch_size": 1, "steps": [1], "n": 0, '
    '"seeds": {}}'
)


def test_every_recipe_and_the_plain_command_have_a_case() -> None:
    assert set(cases.NAMES) == {*RECIPES, "default", "mlp", "resnet8"}
    assert cases.find("default").words == (
        "--train-batch-size=16",
        "--num-towers=2",
        "--precision=fp32",
    )


@pytest.mark.parametrize(
    ("name", "steps"), [("resnet20", 441), ("fast", 21), ("airbench94", 41), ("resnet8", 201)]
)
def test_a_case_trains_a_number_of_steps_whatever_the_time(name: str, steps: int) -> None:
    assert cases.find(name).steps(20)[-1] == steps


def test_the_first_step_is_in_no_row() -> None:
    assert cases.find("resnet8").steps(3) == (11, 21, 31)


def test_flags_that_are_tried_take_the_place_of_the_case_s_own() -> None:
    found = cases.find("resnet8", more_words=("--learning_rate=0.5", "--cutout=0"))
    assert [word for word in found.words if "rate" in word] == ["--learning_rate=0.5"]
    assert found.log_steps == 10
    with pytest.raises(BenchmarkError, match="--mode is what this benchmark decides"):
        cases.find("resnet8", more_words=("--mode=evaluate",))


def test_precisions_are_kept_apart() -> None:
    assert cases.find("fast").file_name == "fast.json"
    assert cases.find("fast", "bf16").file_name == "fast-bf16.json"


def test_a_curve_is_kept_with_all_that_it_depends_on(tmp_path: Path) -> None:
    COMMITTED.save(tmp_path / "a" / "b.json")
    assert Curve.load(tmp_path / "a" / "b.json") == COMMITTED
    content = json.loads((tmp_path / "a" / "b.json").read_text())
    assert content["n"] == 3
    assert content["versions"]["tensorflow"] == "2.15.1"
    assert content["data"] == DATA
    assert content["seeds"]["3"]["accuracy"] == [0.51] * 8


@pytest.mark.parametrize("text", ["{}", "[]", "no JSON", '{"seeds": {"1": {}}}', NO_SEEDS])
def test_another_file_is_no_curve(text: str, tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(text)
    with pytest.raises(BenchmarkError, match="is not what converge writes"):
        Curve.load(tmp_path / "a.json")


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


def test_flags_that_the_program_refuses_are_said(tmp_path: Path) -> None:
    with pytest.raises(BenchmarkError, match="ended with 2: error: --num-layers must be 6n"):
        train_beginning(["--num-layers=9"], (11, 21), tmp_path)


def test_no_training_is_left_behind_by_sigterm(tmp_path: Path) -> None:
    records = make_records(tmp_path / "records", 100)
    words = ["converge", f"--data-dir={records}", "--cases=mlp", "--write"]
    command = [sys.executable, "-m", "benchmarks", *words, f"--committed={tmp_path}/curves"]
    process = subprocess.Popen(command, cwd=ROOT)
    try:
        children = _wait_for_child(process)
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 130
    finally:
        process.kill()
        process.wait()
    assert [child for child in children if Path(f"/proc/{child}").exists()] == []


def _wait_for_child(process: "subprocess.Popen[bytes]") -> list[str]:
    """Waits for child processes that run cifar10_main.py; returns their process ids."""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        of_task = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        found = [one for one in of_task if b"cifar10_main" in _command_of(one)]
        if found:
            return found
        time.sleep(0.05)
    raise AssertionError("no training began within 120 s")


def _command_of(pid: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


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


def test_the_picture_shows_committed_and_new_curves(tmp_path: Path) -> None:
    picture.save([(COMMITTED, COMMITTED), (None, COMMITTED)], tmp_path / "curves.png")
    with Image.open(tmp_path / "curves.png") as found:
        assert found.format == "PNG"
        assert found.height > 700


def test_the_table_has_a_row_a_curve(tmp_path: Path) -> None:
    COMMITTED.save(tmp_path / "synthetic" / "resnet8.json")
    row = (
        "| synthetic | resnet8 | fp32, own | 3 | 81 x 64 | 1.000 (1.000 to 1.000) | "
        "0.800 (0.800 to 0.800) |"
    )
    machine = "2 cores of a CPU; Python 3.11.7, TensorFlow 2.15.1"
    measured = CONDITIONS["measured"]
    measured_on = f"Measured on {machine}"
    assert curves_table(tmp_path).splitlines()[2:] == [row, "", f"{measured_on}; {measured}."]
    other = dataclasses.replace(COMMITTED, conditions={**CONDITIONS, "measured": "2000-01-01"})
    other.save(tmp_path / "synthetic" / "resnet8-later.json")
    assert curves_table(tmp_path).splitlines()[2:] == [
        f"{row} 2000-01-01 |",
        f"{row} {measured} |",
        "",
        f"{measured_on}.",
    ]
    elsewhere = {**CONDITIONS, "hardware": {**CONDITIONS["hardware"], "cpu": "an old CPU"}}
    dataclasses.replace(other, conditions=elsewhere).save(tmp_path / "synthetic" / "x.json")
    *_, last = curves_table(tmp_path).splitlines()
    assert last == f"{row} 2 cores of an old CPU; Python 3.11.7, TensorFlow 2.15.1 | {measured} |"
    with pytest.raises(BenchmarkError, match="has no curves; python -m benchmarks converge"):
        curves_table(tmp_path / "none")
