"""Rows of training and validation: their digits, and that each survives once and whole."""

import json
import math
import pathlib

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from cifar10.errors import DamagedError
from cifar10.output.history import History, Metrics, rounded, rounded_figures
from tests.cifar10.saved import validated


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (float(np.float32(0.1)), "0.1"),
        (2.3025850929, "2.30259"),
        (3.0970e-06 / 3, "1.03233e-06"),
    ],
)
def test_a_number_has_at_most_six_significant_digits(value: float, written: str) -> None:
    assert repr(rounded(value)) == written


def test_what_is_no_finite_float_stays_as_it_is() -> None:
    figures = {"step": 12_345_678, "best": None, "status": "completed", "loss": math.inf}
    assert rounded_figures(figures) == figures


def train_row(step, seconds):
    speed = {"learning_rate": 0.1, "images_per_sec": 100.0}
    return {**validation_row(step, 0.2), **speed, "seconds": seconds}


def validation_row(step, accuracy):
    return {"step": step, "epoch": 0.5, "loss": 2.0, "accuracy": accuracy, "seconds": 1.0}


@pytest.fixture
def folder(tmp_path):
    history = History.load(str(tmp_path), last_step=0)
    history.train.extend([train_row(10, 1.5), train_row(20, 2.5), train_row(30, 4.0)])
    history.validation.extend([validation_row(10, 0.3), validation_row(30, 0.4)])
    history.save()
    return tmp_path


@pytest.mark.parametrize(
    ("step", "train", "validation", "secs"),
    [(30, [10, 20, 30], [10, 30], 4.0), (20, [10, 20], [10], 2.5), (0, [], [], 0.0)],
)
def test_a_continued_run_keeps_the_rows_up_to_its_checkpoint(folder, step, train, validation, secs):
    history = History.load(str(folder), last_step=step)
    assert [row["step"] for row in history.train] == train
    assert [row["step"] for row in history.validation] == validation
    assert history.seconds == secs


def test_the_validations_of_both_processes_make_one_curve(folder):
    validated(folder, [validation_row(20, 0.35), {**validation_row(25, 0.3), "loss": math.inf}])
    validated(folder, [validation_row(35, 0.5)])
    with (folder / "metrics_evaluator.jsonl").open("a") as file:
        file.write('{"split": "validation", "step": 26}\n{"s')
    history = History.load(str(folder), last_step=30)
    assert [row["step"] for row in history.validation] == [10, 20, 25, 30]
    assert history.validation[1] == validation_row(20, 0.35)
    assert math.isnan(history.validation[2]["loss"])


@pytest.fixture
def path(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    monkeypatch.setattr("cifar10.output.history.time.time", lambda: 1795448234.56789)
    return tmp_path / "metrics.jsonl"


def write(path: object, *steps: int) -> Metrics:
    metrics = Metrics(str(path))
    for step in steps:
        metrics.add("train", step, {"loss": 2.0 / step})
    return metrics


def continued(path: pathlib.Path, step: int) -> tuple[Metrics, list[str]]:
    said: list[str] = []
    return Metrics.load(str(path), f"model.ckpt-{step}", step, said.append), said


def rows(path: pathlib.Path) -> list[tuple[str, int]]:
    found = [json.loads(line) for line in path.read_text().splitlines()]
    return [(row["split"], row["step"]) for row in found]


def test_a_row_is_a_line_of_standard_json_as_soon_as_it_is_known(path):
    metrics = write(path, 3)
    metrics.add("validation", 3, {"loss": math.nan, "accuracy": 0.918})
    assert path.read_text() == (
        '{"split": "train", "step": 3, "loss": 0.666667, "wall_time": 1795448234.568}\n'
        '{"split": "validation", "step": 3, "loss": null, "accuracy": 0.918, '
        '"wall_time": 1795448234.568}\n'
    )


def test_a_run_that_continues_drops_half_a_line_and_rows_of_steps_that_are_trained_again(path):
    write(path, 10, 20, 30)
    with path.open("a") as file:
        file.write('{"split": "train", "st')
    metrics, said = continued(path, 20)
    assert rows(path) == [("train", 10), ("train", 20)]
    metrics.add("train", 30, {})
    assert rows(path) == [("train", 10), ("train", 20), ("train", 30)]
    assert said == []


def test_a_row_that_is_repeated_takes_the_place_of_the_first_or_is_forgotten(path):
    metrics = write(path, 10, 20)
    metrics.add("train", 10, {"loss": 1.0})
    assert rows(path) == [("train", 20), ("train", 10)]
    History(None, metrics=metrics).forget_after(10)
    assert rows(path) == [("train", 10)]


def test_the_file_of_an_older_run_is_renamed(path):
    write(path, 10)
    said: list[str] = []
    metrics = Metrics.load(str(path), None, 0, said.append)
    metrics.add("train", 1, {})
    assert rows(path) == [("train", 1)]
    assert rows(path.with_name("metrics.jsonl.older")) == [("train", 10)]
    assert said == [f"{path} is of an older run; it is now {path}.older"]


@pytest.mark.parametrize("line", ["\0\0\0", '{"split": "train", "step": true}'])
def test_a_line_that_is_no_row_is_named(path, line):
    write(path, 10, 20)
    first, second = path.read_text().splitlines()
    path.write_text(f"{first}\n{line}\n{second}\n")
    with pytest.raises(DamagedError, match=r"metrics.jsonl is damaged \(line 2\); move it away"):
        continued(path, 20)


def test_where_files_cannot_grow_all_rows_are_written_at_once(tmp_path):
    path = f"ram://{tmp_path}/metrics.jsonl"
    tf.io.gfile.makedirs(f"ram://{tmp_path}")
    metrics = write(path, 10, 20)
    assert not tf.io.gfile.exists(path)
    History(None, metrics=metrics).save()
    with tf.io.gfile.GFile(path) as file:
        assert [json.loads(line)["step"] for line in file.read().splitlines()] == [10, 20]


def test_a_file_that_was_moved_away_comes_back_with_all_rows(path):
    metrics = write(path, 10, 20)
    path.rename(path.with_name("mine.jsonl"))
    metrics.flush()
    assert rows(path) == [("train", 10), ("train", 20)]
