"""metrics.jsonl has each row once and whole, whatever a kill has left."""

import json
import math
import pathlib

import pytest
import tensorflow.compat.v1 as tf

from cifar10.output import recovery
from cifar10.output.history import History
from cifar10.output.metrics import Metrics


@pytest.fixture
def path(tmp_path: pathlib.Path) -> pathlib.Path:
    return tmp_path / "metrics.jsonl"


def write(path: object, *steps: int) -> Metrics:
    metrics = Metrics(str(path), clock=lambda: 1795448234.56789)
    for step in steps:
        metrics.add("train", step, {"loss": 2.0 / step})
    return metrics


def continued(path: pathlib.Path, step: int) -> tuple[Metrics, list[str]]:
    said: list[str] = []
    return recovery.load_metrics(str(path), f"model.ckpt-{step}", step, said.append), said


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


def test_a_whole_last_line_without_its_end_is_half_a_line(path):
    write(path, 10, 20)
    path.write_text(path.read_text()[:-1])
    metrics, _ = continued(path, 20)
    metrics.add("train", 20, {})
    assert rows(path) == [("train", 10), ("train", 20)]


def test_an_evaluation_that_is_repeated_takes_the_place_of_its_first_row(path):
    write(path, 10, 20).add("train", 10, {"loss": 1.0})
    assert rows(path) == [("train", 20), ("train", 10)]


def test_a_session_that_starts_again_forgets_what_it_repeats(path):
    history = History(None, metrics=write(path, 10, 20, 30))
    history.forget_after(10)
    assert rows(path) == [("train", 10)]


def test_the_file_of_an_older_run_is_renamed(path):
    write(path, 10)
    said: list[str] = []
    metrics = recovery.load_metrics(str(path), None, 0, said.append)
    metrics.add("train", 1, {})
    assert rows(path) == [("train", 1)]
    assert rows(path.with_name("metrics.jsonl.older")) == [("train", 10)]
    assert said == [f"{path} is of an older run; it is now {path}.older"]


@pytest.mark.parametrize("line", ["\0\0\0", "[1]", '{"split": "train", "step": true}', "{}"])
def test_a_damaged_file_is_renamed_and_its_other_rows_are_kept(path, line):
    write(path, 10, 20)
    first, second = path.read_text().splitlines()
    path.write_text(f"{first}\n{line}\n{second}\n")
    _, said = continued(path, 20)
    assert rows(path) == [("train", 10), ("train", 20)]
    assert said == [
        f"{path} is damaged (line 2); it is now {path}.damaged, and its other rows are kept"
    ]


def test_where_files_cannot_grow_all_rows_are_written_at_once(tmp_path):
    path = f"ram://{tmp_path}/metrics.jsonl"
    tf.io.gfile.makedirs(f"ram://{tmp_path}")
    metrics = write(path, 10, 20)
    assert not tf.io.gfile.exists(path)
    History(None, metrics=metrics).save()
    with tf.io.gfile.GFile(path) as file:
        assert [json.loads(line)["step"] for line in file.read().splitlines()] == [10, 20]


def test_a_file_that_is_moved_away_meanwhile_is_written_anew_at_the_next_checkpoint(path):
    metrics = write(path, 10, 20)
    path.rename(path.with_name("mine.jsonl"))
    metrics.flush()
    assert rows(path) == [("train", 10), ("train", 20)]


def test_a_row_after_the_file_was_moved_away_does_not_hide_that_earlier_ones_are_gone(path):
    metrics = write(path, 10, 20)
    path.rename(path.with_name("mine.jsonl"))
    metrics.add("train", 30, {})
    assert rows(path) == [("train", 10), ("train", 20), ("train", 30)]
    metrics.flush()
    assert rows(path) == [("train", 10), ("train", 20), ("train", 30)]


def test_without_a_path_nothing_is_written(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_nothing = Metrics()
    write_nothing.add("train", 1, {})
    write_nothing.forget_after(0)
    write_nothing.flush()
    assert list(tmp_path.iterdir()) == []
