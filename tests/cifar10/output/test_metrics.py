"""Rows of training and validation: their digits, and that each survives once and whole."""

import json
import math
import pathlib

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from cifar10.errors import DamagedError
from cifar10.output.metrics import Metrics, rounded, rounded_values
from tests.cifar10.saved import validated


@pytest.mark.parametrize(
    ("value", "written"),
    [(float(np.float32(0.1)), "0.1"), (2.3025850929, "2.30259"), (3.0970e-06 / 3, "1.03233e-06")],
)
def test_a_number_has_at_most_six_significant_digits(value: float, written: str) -> None:
    assert repr(rounded(value)) == written


def test_what_is_no_finite_float_stays_as_it_is() -> None:
    figures = {"step": 12_345_678, "best": None, "status": "completed", "loss": math.inf}
    assert rounded_values(figures) == figures


def row(**changes):
    return {"epoch": 0.5, "loss": 2.0, "accuracy": 0.2, "seconds": 1.0, **changes}


@pytest.fixture
def folder(tmp_path):
    metrics = Metrics(str(tmp_path))
    for step, seconds in ((10, 1.5), (20, 2.5), (30, 4.0)):
        metrics.add("train", step, **row(seconds=seconds))
    for step in (10, 30):
        metrics.add("validation", step, **row())
    return tmp_path


def steps(metrics, split):
    return [row["step"] for row in metrics.of(split)]


@pytest.mark.parametrize(
    ("step", "train", "validation", "secs"),
    [(30, [10, 20, 30], [10, 30], 4.0), (20, [10, 20], [10], 2.5), (0, [], [], 0.0)],
)
def test_a_continued_run_keeps_the_rows_up_to_its_checkpoint(folder, step, train, validation, secs):
    metrics = Metrics(str(folder), last_step=step)
    assert (steps(metrics, "train"), steps(metrics, "validation")) == (train, validation)
    assert metrics.seconds == secs


def test_the_validations_of_both_processes_make_one_curve(folder):
    validated(folder, [{"step": 20, **row()}, {"step": 25, **row(loss=math.inf)}])
    validated(folder, [{"step": 30, **row(loss=9.0)}, {"step": 35, **row()}])
    with (folder / "metrics_evaluator.jsonl").open("a") as file:
        file.write('{"s')
    found = Metrics(str(folder), last_step=30).of("validation")
    losses = [(row["step"], row["loss"]) for row in found]
    assert losses[:2] + losses[3:] == [(10, 2.0), (20, 2.0), (30, 2.0)]
    assert losses[2][0] == 25
    assert math.isnan(losses[2][1])


def test_what_another_process_writes_meanwhile_is_read_again_and_not_written(folder):
    metrics = Metrics(str(folder))
    validated(folder, [{"step": 20, **row()}, {"step": 35, **row()}])
    assert steps(metrics, "validation") == [10, 30]
    metrics.read_others(30)
    assert steps(metrics, "validation") == [10, 20, 30]
    metrics.forget_after(10)
    assert steps(metrics, "validation") == [10]
    assert rows(folder / "metrics.jsonl") == [("train", 10), ("validation", 10)]


@pytest.fixture
def path(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    monkeypatch.setattr("cifar10.output.metrics.time.time", lambda: 1795448234.56789)
    return tmp_path / "metrics.jsonl"


def write(path: pathlib.Path, *steps: int) -> Metrics:
    metrics = Metrics(str(path.parent))
    for step in steps:
        metrics.add("train", step, **row())
    return metrics


def rows(path: pathlib.Path) -> list[tuple[str, int]]:
    found = [json.loads(line) for line in path.read_text().splitlines()]
    return [(row["split"], row["step"]) for row in found]


def test_a_row_is_a_line_of_standard_json_as_soon_as_it_is_known(path):
    metrics = write(path)
    metrics.add("train", 3, loss=2.0 / 3)
    metrics.add("validation", 3, loss=math.nan, accuracy=0.918)
    assert path.read_text() == (
        '{"split": "train", "step": 3, "loss": 0.666667, "wall_time": 1795448234.568}\n'
        '{"split": "validation", "step": 3, "loss": null, "accuracy": 0.918, '
        '"wall_time": 1795448234.568}\n'
    )


def test_a_row_that_is_repeated_takes_the_place_of_the_first_or_is_forgotten(path):
    metrics = write(path, 10, 20)
    metrics.add("train", 10, loss=1.0)
    assert rows(path) == [("train", 20), ("train", 10)]
    metrics.forget_after(10)
    assert rows(path) == [("train", 10)]


@pytest.mark.parametrize(
    "line",
    [
        "\0\0\0",
        '{"split": "train", "step": true}',
        '{"split": "validation", "step": 10, "loss": 1.0, "accuracy": 0.5}',
        '{"split": "eval", "step": 10, "loss": "1.0"}',
    ],
)
def test_a_line_that_is_no_row_is_named(path, line):
    write(path, 10, 20)
    first, second = path.read_text().splitlines()
    path.write_text(f"{first}\n{line}\n{second}\n")
    with pytest.raises(DamagedError, match=r"metrics.jsonl is damaged \(row 2\); move it away"):
        Metrics(str(path.parent))


def test_where_files_cannot_grow_all_rows_are_written_at_once(tmp_path):
    folder = f"ram://{tmp_path}"
    tf.io.gfile.makedirs(folder)
    metrics = Metrics(folder)
    for step in (10, 20):
        metrics.add("train", step, **row())
    assert not tf.io.gfile.exists(f"{folder}/metrics.jsonl")
    metrics.save()
    assert steps(Metrics(folder), "train") == [10, 20]


def test_a_file_that_was_moved_away_comes_back_with_all_rows(path):
    metrics = write(path, 10, 20)
    path.rename(path.with_name("mine.jsonl"))
    metrics.save()
    assert rows(path) == [("train", 10), ("train", 20)]
