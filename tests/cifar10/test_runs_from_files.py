"""Whole runs whose settings come from files: a result makes the same run again."""

import json
from pathlib import Path
from typing import Any

from tests.cifar10 import program
from tests.cifar10.forks import Forks


def _result(folder: Path) -> dict[str, Any]:
    result: dict[str, Any] = json.loads((folder / "result.json").read_text(encoding="utf-8"))
    return result


def test_a_result_makes_the_same_run_again(tmp_path: Path, forks: Forks) -> None:
    program.make_records(tmp_path / "data", 200)
    (tmp_path / "mine.yaml").write_text("model: mlp\ntrain-batch-size: 16\nhidden_units: 20\n")
    first = forks.run("--recipe=mine.yaml", "--train-steps=3", "--seed=4", cwd=tmp_path)
    assert (first.returncode, first.stderr) == (0, "")
    (tmp_path / "mine.yaml").unlink()  # the result has its settings
    words = ("--config", "output/result.json", "--output-dir", "again")
    second = forks.run(*words, cwd=tmp_path)
    assert (second.returncode, second.stderr) == (0, "")
    one, other = _result(tmp_path / "output"), _result(tmp_path / "again")
    assert one["recipe"] == "mine.yaml"
    assert {"learning_rate", "warmup_epochs", "num_towers", "kernels"} <= set(one["chosen"])
    assert other["chosen"] == one["chosen"]
    assert other["configuration"] == {**one["configuration"], "output_dir": "again"}
    assert other["confusion_matrix"] == one["confusion_matrix"]
    losses = [[row["loss"] for row in found["history"]["train"]] for found in (one, other)]
    assert losses[0] == losses[1] != []


def test_a_mistake_in_a_file_ends_with_2_in_one_line(tmp_path: Path, forks: Forks) -> None:
    (tmp_path / "mine.yaml").write_text("model: mlp\ntrain_bach_size: 16\n")
    done = forks.run("--config=mine.yaml", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "error: mine.yaml:2: there is no setting train_bach_size; did you mean train_batch_size?\n"
    )
