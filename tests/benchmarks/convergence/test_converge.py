"""Compares learning with the committed curve: by loss and accuracy, not by time."""

from pathlib import Path
from statistics import fmean

import pytest

from benchmarks import cli
from benchmarks.convergence.converge import COMMITTED
from benchmarks.convergence.curve import Curve, SeedCurve
from tests.cifar10.program import make_records


@pytest.fixture(scope="module")
def synthetic(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The records on which the committed curves of synthetic images were trained."""
    return make_records(tmp_path_factory.mktemp("converge") / "synthetic", 10_000)


@pytest.mark.system
@pytest.mark.timeout(1200)  # 25 s of CPU time; other load must not decide
def test_a_small_resnet_learns_as_its_committed_curve(
    synthetic: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--cases", "resnet8", "--seeds", "1", f"--data-dir={synthetic}"]
    words += [f"--out={tmp_path}", f"--picture={tmp_path}/curves.svg"]
    assert cli.main(["converge", *words]) == 0, capsys.readouterr().out
    assert "resnet8, synthetic, fp32: agrees (seed 1" in capsys.readouterr().out
    assert "training loss" in (tmp_path / "curves.svg").read_text()
    _check_same_seed(*(_seed_1(folder) for folder in (tmp_path, COMMITTED)))


def _seed_1(folder: Path) -> SeedCurve:
    return Curve.load(folder / "synthetic" / "resnet8.json").seeds[1]


def _check_same_seed(new: SeedCurve, committed: SeedCurve) -> None:
    """Checks that curves of the same seed differ by rounding only, less than other seeds do.

    With TensorFlow's convolutions instead of ours, whose rounding is very different, quarters
    differ by up to .0016 (loss) and .0053 (accuracy), validation by .0005 and .003.
    """
    for begin in (0, 5, 10, 15):
        rows = slice(begin, begin + 5)
        assert fmean(new.loss[rows]) == pytest.approx(fmean(committed.loss[rows]), abs=0.02)
        assert fmean(new.accuracy[rows]) == pytest.approx(fmean(committed.accuracy[rows]), abs=0.03)
    assert new.validation_loss == pytest.approx(committed.validation_loss, abs=0.05)
    assert new.validation_accuracy == pytest.approx(committed.validation_accuracy, abs=0.03)
