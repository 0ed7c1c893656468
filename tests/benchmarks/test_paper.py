"""The paper's schedule: what is read from runs that have ended."""

from pathlib import Path

import pytest

import cifar10
from benchmarks import paper, tables
from benchmarks.arguments import BenchmarkError
from cifar10.report import draw_curves
from tests.cifar10.program import make_records

ROW = '{{"split": "{}", "step": {}, "accuracy": {}}}\n'


def ended(folder: Path, last: float, best_step: int, best: float, steps: int = 20) -> Path:
    """Writes the rows of a run: validations at step 9 and at the end, and its evaluation."""
    rows = [("validation", 9, 0.5), ("validation", steps, last), ("eval", best_step, best)]
    folder.mkdir()
    (folder / "metrics.jsonl").write_text("".join(ROW.format(*row) for row in rows))
    return folder


def test_accuracies_are_of_last_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = ended(tmp_path / "a", 0.7, 20, 0.9), ended(tmp_path / "b", 0.4, 9, 0.6)
    data, out = str(make_records(tmp_path / "data", 100)), tmp_path / "found.json"

    def evaluate(**found: str) -> dict[str, float]:
        # Only the run whose best weights are not its last ones.
        assert (found["checkpoint"], found["data_dir"]) == (f"{b}/model.ckpt-20", data)
        return {"accuracy": 0.8}

    monkeypatch.setattr(cifar10, "evaluate", evaluate)
    monkeypatch.setattr(paper, "torch_version", lambda python: "2.0")
    words = f"--ours {a} {b} --torch {a} --data-dir {data} --images JPEG --out {out}"
    paper.main(words.split())
    found = tables.read_results(out)
    assert found["data"] == "CIFAR-10, JPEG: 90 train, 10 validation, 20 eval"
    ours, torch, published = found["rows"]
    assert (found["n"], ours["steps"], ours["each"]) == ("2, 1", 20, [0.9, 0.8])
    assert (ours["mean"], ours["std"]) == pytest.approx((0.85, 0.0707107))
    assert (ours["n"], torch["n"], torch["std"], published["mean"]) == (2, 1, None, 0.9125)
    (curve,) = torch["curves"]
    assert curve == [{"epoch": 12.8, "accuracy": 0.5}, {"epoch": 2560 / 90, "accuracy": 0.7}]
    assert draw_curves({"a": {"train": [], "validation": curve}})["Accuracy"][1:4] == b"PNG"


def test_runs_that_have_not_ended_or_differ_in_length_are_refused(tmp_path: Path) -> None:
    with pytest.raises(BenchmarkError, match="must hold a training that has ended"):
        paper.row_of("ours", [tmp_path / "none"], "data", 90)
    folders = [ended(tmp_path / str(end), 0.7, end, 0.9, end) for end in (20, 30)]
    with pytest.raises(BenchmarkError, match=r"must end at the same step, got \[20, 30\]"):
        paper.row_of("ours", folders, "data", 90)
