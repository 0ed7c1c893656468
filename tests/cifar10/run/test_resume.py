"""A run that goes on with other records or another seed says so, and remembers the first ones."""

import json
import pathlib
from collections.abc import Callable
from typing import Any

import pytest

from cifar10.cluster.spec import Cluster
from cifar10.config.train_config import NOTHING_DONE, TrainConfig
from cifar10.input.records import open_records
from cifar10.run.job import make_job
from cifar10.run.resume import Start, note_model, step_of_end
from tests.cifar10.saved import save_untrained
from tests.unprivileged import open_folder, unprivileged

OTHER = (
    "note: these records differ from those that this run began with (train, validation); "
    "images that trained it may now be in the validation split\n"
)


@pytest.fixture
def say(tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Notes the model of a run, which goes on if it has begun; returns what that prints."""
    checkpoints: list[str] = []
    (tmp_path / "output").mkdir()

    def note(data: pathlib.Path, **settings: Any) -> str:
        config = TrainConfig(
            model="mlp",
            hidden_units=4,
            data_dir=str(data),
            output_dir=str(tmp_path / "output"),
            **settings,
        )
        job = make_job(config, open_records(config.data_place))
        found = checkpoints[0] if checkpoints else None
        note_model(job, Start(found, NOTHING_DONE, None, None, is_over=False))
        if not checkpoints:
            checkpoints.append(save_untrained(config))
        return capsys.readouterr().out

    return note


@pytest.fixture
def noted(tmp_path: pathlib.Path) -> pathlib.Path:
    """The file of the note."""
    return tmp_path / "output/run.json"


def test_other_records_are_told_each_time_and_the_first_ones_remembered(
    say, noted, prepared_data, tutorial_data
):
    assert say(prepared_data) == say(prepared_data) == ""
    first = json.loads(noted.read_text())
    files = json.loads((prepared_data / "manifest.json").read_text())["splits"]
    assert first["records"] == {
        split: [file["sha256"] for file in files[split]["files"]]
        for split in ("train", "validation")
    }
    assert say(tutorial_data) == say(tutorial_data) == OTHER
    assert json.loads(noted.read_text()) == first


def test_another_seed_is_told_and_the_first_one_remembered(say, noted, prepared_data):
    say(prepared_data, seed=3)
    line = "note: this run began with --seed 3; with --seed 4, images that are still to come have"
    assert say(prepared_data, seed=4).startswith(line)
    assert json.loads(noted.read_text())["seed"] == 3
    assert say(prepared_data, seed=3) == ""


def test_a_worker_that_may_not_read_the_folder_of_the_chief_does_not_know_the_end(tutorial_data):
    jobs = {"master": ("a:1",), "worker": ("b:1",)}
    cluster = Cluster(jobs, "worker", 0, has_evaluator=False, source="TF_CONFIG")
    records = open_records(str(tutorial_data))
    with open_folder() as folder:
        (folder / "output").mkdir(0)
        with unprivileged():
            assert step_of_end(TrainConfig(output_dir=f"{folder}/output"), cluster, records) is None
