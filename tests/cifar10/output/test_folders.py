"""Each folder that a run writes to is tried at its start."""

import pathlib

import pytest

from cifar10.config.train_config import TrainConfig
from cifar10.errors import ConfigError
from cifar10.output.folders import open_folders

EVENTS = ("logs/train", "logs/eval", "logs/eval_validation", "output/eval_validation")
INSIDE = (*EVENTS, "output/best", "output/export")


def config(folder: pathlib.Path) -> TrainConfig:
    return TrainConfig(output_dir=f"{folder}/output", log_dir=f"{folder}/logs")


def test_folders_that_nobody_needs_yet_are_not_made(tmp_path):
    open_folders(config(tmp_path))
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["logs", "output"]


@pytest.mark.parametrize("name", INSIDE)
def test_a_file_in_place_of_a_folder_is_refused(tmp_path, name):
    path = tmp_path / name
    path.parent.mkdir()
    path.write_text("")
    with pytest.raises(ConfigError, match=rf" {path} cannot be written to: .*is not a directory;"):
        open_folders(config(tmp_path))
