"""run.json: what it keeps, and which content is refused."""

import json
import pathlib

import pytest

from cifar10.config.train_config import TrainConfig
from cifar10.errors import DamagedError, UserError
from cifar10.output import model_settings, run_file
from cifar10.schema import CLASS_NAMES

TRAINING = {"master_validates": False, "ended_at_step": 5, "status": "completed"}


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


@pytest.mark.parametrize(
    ("entries", "why"),
    [
        ({"settings": None}, "its settings is not what training writes"),
        ({"class_names": []}, "it has no class names"),
        ({"resize": "blur"}, "its resize is unknown"),
        ({"resize": True}, "its resize is not what training writes"),
        ({"training": {"status": ""}}, "its training is not what training writes"),
    ],
)
def test_content_that_training_does_not_write_is_refused(path, entries, why):
    path.write_text(json.dumps({**json.loads(path.read_text()), **entries}))
    with pytest.raises(DamagedError) as refused:
        run_file.read(str(path.parent))
    assert str(refused.value) == f"{path} is damaged ({why}); move it away or mend it"


@pytest.mark.parametrize("name", ["settings", "resize"])
def test_a_file_without_todays_entries_is_of_another_version(path, name):
    content = json.loads(path.read_text())
    del content[name]
    path.write_text(json.dumps(content))
    with pytest.raises(UserError) as refused:
        run_file.read(str(path.parent))
    assert str(refused.value) == (
        f"{path} is of another version of this program, which cannot be continued or used (it has "
        f"no {name}); name another --output-dir, or take the version that wrote it"
    )


def test_a_file_with_other_entries_is_of_another_version_unless_they_are_empty(path):
    content = json.loads(path.read_text())
    path.write_text(json.dumps({**content, "history": None}))
    assert run_file.read(str(path.parent)).training == TRAINING
    path.write_text(json.dumps({**content, "history": {"train": [{"step": 5}]}}))
    with pytest.raises(UserError, match=r"/run.json is of another version .*\(it has history\);"):
        run_file.read(str(path.parent))


@pytest.mark.parametrize("name", ["model.json", "owner.json", "training.json", "history.json"])
def test_a_folder_of_another_version_is_not_taken_for_an_empty_one(path, name):
    other = path.rename(path.with_name(name))
    with pytest.raises(UserError, match=rf"^{other} is of another version of this program"):
        run_file.read(str(path.parent))
