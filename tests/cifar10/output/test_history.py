"""Rows of training and validation survive the run, but not the steps that were lost."""

import json

import pytest

from cifar10.errors import UserError
from cifar10.output.history import VALIDATION_FILE_NAME, History


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


def test_a_new_run_has_no_rows(tmp_path):
    history = History.load(str(tmp_path), last_step=0)
    assert history.as_dict() == {"train": [], "validation": []}
    assert history.seconds == 0.0


def test_a_continued_run_keeps_its_rows(folder):
    history = History.load(str(folder), last_step=30)
    assert [row["step"] for row in history.train] == [10, 20, 30]
    assert [row["step"] for row in history.validation] == [10, 30]
    assert history.seconds == 4.0


def test_rows_after_the_checkpoint_were_lost_with_their_steps(folder):
    history = History.load(str(folder), last_step=20)
    assert [row["step"] for row in history.train] == [10, 20]
    assert history.validation == [validation_row(10, 0.3)]
    assert history.seconds == 2.5


def test_a_run_that_starts_anew_takes_no_rows_of_an_earlier_one(folder):
    assert History.load(str(folder), last_step=0).train == []


def test_the_file_lies_beside_the_checkpoints_and_is_whole(folder):
    rows = json.loads((folder / "history.json").read_text())
    assert sorted(rows) == ["train", "validation"]
    assert [path.name for path in folder.iterdir()] == ["history.json"]


def test_a_damaged_history_is_named(folder):
    (folder / "history.json").write_text('{"train": [')
    with pytest.raises(UserError, match=r"history\.json is damaged .*; move it away or mend it"):
        History.load(str(folder), last_step=30)


def test_rows_of_two_runs_do_not_mix(tmp_path):
    first, second = History.load(str(tmp_path), 0), History.load(str(tmp_path / "other"), 0)
    first.train.append(train_row(1, 1.0))
    assert second.train == []


def test_a_history_without_a_path_is_kept_nowhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    history = History(None)
    history.train.append(train_row(10, 1.5))
    history.save()
    assert list(tmp_path.iterdir()) == []
    assert history.as_dict() == {"train": [train_row(10, 1.5)], "validation": []}
    assert history.seconds == 1.5


def test_an_evaluators_rows_lie_in_a_file_of_their_own(folder):
    assert VALIDATION_FILE_NAME == "history_validation.json"
    history = History.load(str(folder), 30, VALIDATION_FILE_NAME)
    assert history.as_dict() == {"train": [], "validation": []}
    history.validation.append(validation_row(20, 0.35))
    history.save()
    assert [row["step"] for row in History.load(str(folder), 30).validation] == [10, 30]
    again = History.load(str(folder), 30, VALIDATION_FILE_NAME)
    assert again.validation == [validation_row(20, 0.35)]
