"""run.json: what it keeps, which content is refused, and that earlier versions' files are read."""

import json
import pathlib
from typing import Any

import pytest

from cifar10.config.train_config import TrainConfig
from cifar10.errors import DamagedError
from cifar10.output import model_settings, run_file
from cifar10.schema import CLASS_NAMES

ROW = {"step": 5, "epoch": 0.1, "loss": 2.0, "accuracy": 0.1, "seconds": 3.0}
TRAIN_ROW = {**ROW, "learning_rate": 0.1, "images_per_sec": 9.0}
TRAINING = {"master_validates": False, "ended_at_step": 5, "status": "completed"}
SETTINGS = {"model": "resnet", "batch_norm": "sync", "num_layers": 8, "optimizer": "nesterov"}
# What the version before run.json wrote.
EARLIER: dict[str, dict[str, Any]] = {
    "model.json": {
        "settings": SETTINGS,
        "class_names": list(CLASS_NAMES),
        "resize": "crop",
    },
    "owner.json": {"owner": "0123"},
    "training.json": TRAINING,
    "history.json": {"train": [TRAIN_ROW], "validation": [ROW]},
}


@pytest.fixture
def folder(tmp_path: pathlib.Path) -> pathlib.Path:
    """A folder of the version before run.json."""
    for name, content in EARLIER.items():
        (tmp_path / name).write_text(json.dumps(content))
    return tmp_path


@pytest.fixture
def path(tmp_path: pathlib.Path) -> pathlib.Path:
    """The run.json of a ResNet-8 that has been trained."""
    config = TrainConfig(output_dir=str(tmp_path), num_layers=8)
    model_settings.write(config, CLASS_NAMES, training=TRAINING, resize="pad")
    return tmp_path / "run.json"


def test_entries_stay_as_they_are_until_they_are_updated(path):
    before = run_file.read(str(path.parent))
    assert (before.training, before.resize, before.owner) == (TRAINING, "pad", None)
    owner = run_file.read_or_make_owner(str(path.parent))
    assert run_file.read_or_make_owner(str(path.parent)) == owner
    after = run_file.read(str(path.parent))
    assert vars(after) == {**vars(before), "owner": owner}


def test_the_files_of_an_earlier_version_are_one_run_and_become_run_json(folder):
    run = run_file.read(str(folder))
    expected = {**EARLIER["model.json"], "owner": "0123", "training": TRAINING}
    expected["settings"] = {**SETTINGS, "batch_norm": "tower", "lookahead_steps": 0}
    expected["history"] = EARLIER["history.json"]
    assert vars(run) == expected
    run_file.update(str(folder), resize="pad")
    (folder / "model.json").write_text("{")  # It no longer counts.
    assert vars(run_file.read(str(folder))) == {**expected, "resize": "pad"}


@pytest.mark.parametrize("name", EARLIER)
def test_a_damaged_file_of_an_earlier_version_is_named(folder, name):
    (folder / name).write_text("[]")
    with pytest.raises(DamagedError, match=rf"/{name} is damaged \(.*; move it away or mend it$"):
        run_file.read(str(folder))
    (folder / name).unlink()
    run_file.read(str(folder))


@pytest.mark.parametrize(
    ("entries", "why"),
    [
        ({"settings": None}, "its settings is not what training writes"),
        ({"class_names": []}, "it has no class names"),
        ({"resize": "blur"}, "its resize is unknown"),
        ({"resize": True}, "its resize is not what training writes"),
        ({"training": {"status": ""}}, "its training is not what training writes"),
        (
            {"history": {"train": [{"step": "5"}]}},
            "its history is not what training writes",
        ),
    ],
)
def test_content_that_training_does_not_write_is_refused(path, entries, why):
    path.write_text(json.dumps({**json.loads(path.read_text()), **entries}))
    with pytest.raises(DamagedError) as refused:
        run_file.read(str(path.parent))
    assert str(refused.value) == f"{path} is damaged ({why}); move it away or mend it"


@pytest.mark.parametrize("name", ["settings", "class_names"])
def test_an_entry_that_is_missing_is_not_taken_for_an_empty_one(path, name):
    content = json.loads(path.read_text())
    del content[name]
    path.write_text(json.dumps(content))
    with pytest.raises(DamagedError, match=f"its {name} is not what training writes"):
        run_file.read(str(path.parent))
