"""Learning curves of whole runs, which are trained once, kept and shown."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks import cli
from benchmarks.learning import learning
from cifar10.config import flags
from testbeds.process_list import all_commands
from testbeds.processes import ROOT
from tests.cifar10.program import make_records, wait_for

MLP = ("--model=mlp", "--train-batch-size=10", "--train-steps=20", "--log-steps=5")


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_records(tmp_path_factory.mktemp("learning") / "records", 100)


@pytest.fixture(autouse=True)
def _own_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(learning, "RESULTS", tmp_path / "results")
    monkeypatch.setattr(learning, "PICTURES", tmp_path / "pictures")


def train(records: Path, folder: Path, *words: str) -> int:
    return cli.main(["learning", f"--data-dir={records}", f"--keep={folder}/runs", *words])


def only(monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]) -> None:
    """Makes the benchmark train a single run, with these flags."""
    run = learning.Run("whole", words, learning._ALONE)
    monkeypatch.setattr(learning, "runs", lambda images: (run,))


def test_a_run_is_trained_once_and_its_curve_kept(
    records: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    only(monkeypatch, MLP)
    assert train(records, tmp_path, "--runs", "tutorial") == 0
    assert capsys.readouterr().out == ""
    assert train(records, tmp_path, "--write") == 0
    said = capsys.readouterr().out
    assert said.startswith("whole: 20 steps, loss ")
    result = tmp_path / "runs" / "whole" / "result.json"
    written = result.stat().st_mtime_ns
    curve = json.loads((tmp_path / "results" / "whole.json").read_text())
    assert curve["command"] == f"python cifar10_main.py {' '.join(MLP)}"
    assert curve["epoch"] == [round(step / 9, 4) for step in (6, 11, 16, 20)]  # 90 images
    history = json.loads(result.read_text())["history"]
    assert curve["loss"] == [round(row["loss"], 4) for row in history["train"]]
    assert curve["validation_accuracy"][-1] == round(history["validation"][-1]["accuracy"], 4)

    assert train(records, tmp_path) == 0
    assert capsys.readouterr().out == said
    assert result.stat().st_mtime_ns == written

    only(monkeypatch, (*MLP[:3], "--log-steps=10"))
    assert train(records, tmp_path, "--write") == 2
    assert "is of another run, without --log-steps=10" in capsys.readouterr().err
    assert json.loads((tmp_path / "results" / "whole.json").read_text()) == curve


def test_a_benchmark_that_is_ended_ends_its_runs(records: Path, tmp_path: Path) -> None:
    words = ["learning", f"--data-dir={records}", f"--keep={tmp_path}", "--runs", "whole"]
    command = [sys.executable, "-m", "benchmarks", *words]
    with subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True) as process:
        try:
            wait_for(tmp_path, "whole/training.json", process)
        finally:
            process.terminate()
    assert process.returncode == 130
    assert [words for words in all_commands().values() if str(tmp_path) in words] == []


def test_a_run_that_fails_says_why(
    records: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    only(monkeypatch, ("--model=perceptron",))
    assert train(records, tmp_path, "--write") == 2
    assert re.search(
        r"error: whole: ended with 2: .*--model.*'perceptron'",
        capsys.readouterr().err,
        re.DOTALL,
    )
    assert not (tmp_path / "results").exists()


def test_the_program_understands_every_run() -> None:
    runs = learning.runs(45_000)
    assert tuple(run.name for run in runs) == learning.NAMES
    for run in runs[2:]:
        config = flags.parse(run.words)
        step_size = config.train_batch_size * run.way.synchronous_trainers
        steps = config.total_steps(45_000, step_size)
        assert config.log_steps is not None
        assert 18 <= steps // config.log_steps <= 23
        assert config.sync == (run.way.text != "two trainers, asynchronous")
    assert flags.parse(runs[1].words).recipe == "tutorial"


def made_up(name: str) -> dict[str, Any]:
    run = next(run for run in learning.runs(90) if run.name == name)
    result = {
        "model": "ResNet-44 v1",
        "configuration": {"train_batch_size": 16},
        "finished_at": "2025-01-31T10:00:00",
        "hardware": {},
        "versions": {},
        "data": {"source": {}},
        "figures": {"global_step": 1200, "eval_accuracy": 0.81234},
        "history": {
            "train": [
                {"epoch": epoch, "loss": 2 / epoch, "accuracy": epoch / 4, "learning_rate": 0.1}
                for epoch in (0.5, 1.0, 1.5)
            ],
            "validation": [{"epoch": 1.5, "accuracy": 0.7}],
        },
    }
    return learning.curve_of(run, result)


def test_kept_curves_are_shown_as_a_table_and_pictures(tmp_path: Path) -> None:
    results = tmp_path / "results"
    results.mkdir()
    for name in ("async-1024", "tutorial", "whole", "alone-1024"):
        (results / f"{name}.json").write_text(json.dumps(made_up(name)))
    rows = learning.learning_table(results).splitlines()[2:]
    assert rows[0] == (
        "| `--train-batch-size=16` | one process | 1,200 | 4.00 | 1.33 | 70.0 % | 81.2 % |"
    )
    assert rows[3].startswith(
        "| `--train-batch-size=1024 --train-epochs=2 --sync=false` | two trainers, asynchronous |"
    )
    for folder in ("first", "second"):
        learning.draw(results, tmp_path / folder)
    for name, word in (("whole", "the tutorial's settings"), ("batches", "batches of 1,024")):
        first, second = (tmp_path / one / f"learning-{name}.svg" for one in ("first", "second"))
        assert word in first.read_text()
        assert first.read_bytes() == second.read_bytes()


def test_no_curves_are_no_table(tmp_path: Path) -> None:
    with pytest.raises(learning.BenchmarkError, match="has no curves; python -m benchmarks learn"):
        learning.learning_table(tmp_path)
