"""Learning curves: their training, their files, and when two of them agree."""

from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

from benchmarks import converge
from benchmarks.__main__ import main
from benchmarks.arguments import BenchmarkError
from benchmarks.converge import COMMITTED, Curve, compare, measure, read_curve, seed_rows, verdict
from tests.cifar10.program import make_records


def seed_curve(
    accuracy: float, validation: float = 0.8, rate: float = 0.1, loss: float = 1.0
) -> Curve:
    """Returns a curve of eight rows with the same loss and accuracy."""
    rows = {"loss": [loss] * 8, "accuracy": [accuracy] * 8, "learning_rate": [rate] * 8}
    return {**rows, "validation_loss": loss, "validation_accuracy": validation}


def curve(*seeds: Curve) -> Curve:
    """Returns a curve with eight rows of ten steps for each seed."""
    steps = [11, 21, 31, 41, 51, 61, 71, 81]
    return {"kernels": "own", "steps": steps, "seeds": dict(zip("123", seeds))}


def spread(mean: float = 0.5, **more: float) -> Curve:
    """Returns a curve of three seeds whose accuracies have standard deviation .01."""
    return curve(*(seed_curve(mean + distance, **more) for distance in (-0.01, 0.0, 0.01)))


def differing(new: Curve) -> list[str]:
    return [point.what for point in compare(new, spread()) if point.share > 1]


def test_a_row_is_the_mean_over_its_steps_and_the_first_step_is_in_none() -> None:
    rows: list[dict[str, Any]] = [
        {"split": "train", "step": step, "loss": step, "accuracy": 0.5, "learning_rate": step / 7}
        for step in range(1, 9)
    ]
    rows.append({"split": "validation", "step": 4, "loss": 9.0, "accuracy": 0.1})
    rows.append({"split": "validation", "step": 7, "loss": 3.0, "accuracy": 0.4})
    means = {"loss": [3.0, 6.0], "accuracy": [0.5, 0.5], "learning_rate": [0.571429, 1.0]}
    assert seed_rows(rows, (4, 7)) == {**means, "validation_loss": 3.0, "validation_accuracy": 0.4}
    with pytest.raises(BenchmarkError, match="10 steps .* this one ended at step 8"):
        seed_rows(rows, (4, 7, 10))
    rows[2]["loss"] = None
    with pytest.raises(BenchmarkError, match="must be finite"):
        seed_rows(rows, (4, 7))


def test_means_may_differ_by_three_standard_errors() -> None:
    # Three standard errors of the difference are .0245.
    assert differing(spread(0.524)) == differing(spread(0.476)) == []
    quarters = ("2 to 21", "22 to 41", "42 to 61", "62 to 81")
    assert differing(spread(0.525)) == [f"training accuracy of steps {part}" for part in quarters]


def test_another_learning_rate_and_another_validation_are_seen() -> None:
    assert differing(spread(validation=0.7)) == ["validation accuracy after step 81"]
    agrees, text = verdict("resnet8", spread(rate=0.101), spread())
    assert not agrees
    assert "differs at 1 of 11 points" in text
    assert "learning rate of step 11: 0.101, committed 0.1, allowed difference 1e-05" in text


@pytest.mark.system
@pytest.mark.timeout(1200)  # 25 s of CPU time; other load must not decide
def test_a_small_resnet_learns_as_its_committed_curve(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    synthetic = make_records(tmp_path / "synthetic", 10_000)
    assert main(["converge", "--cases", "resnet8", "--seeds", "1", f"--data-dir={synthetic}"]) == 0
    assert "resnet8, synthetic: agrees (seeds 1, " in capsys.readouterr().out
    # Curves of the same seed differ by rounding only, less than other seeds do. With TensorFlow's
    # convolutions instead of ours, quarters differ by up to .0016 (loss) and .0053 (accuracy),
    # validation by .0005 and .003.
    new = measure("resnet8", converge.words_of_case("resnet8", []), str(synthetic), [1])["1"]
    old = read_curve(COMMITTED / "synthetic" / "resnet8.json")["seeds"]["1"]
    for begin in (0, 5, 10, 15):
        rows = slice(begin, begin + 5)
        assert fmean(new["loss"][rows]) == pytest.approx(fmean(old["loss"][rows]), abs=0.02)
        assert fmean(new["accuracy"][rows]) == pytest.approx(fmean(old["accuracy"][rows]), abs=0.03)
    assert new["validation_loss"] == pytest.approx(old["validation_loss"], abs=0.05)
    assert new["validation_accuracy"] == pytest.approx(old["validation_accuracy"], abs=0.03)
