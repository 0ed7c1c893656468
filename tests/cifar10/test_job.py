"""Steps between checkpoints, and output folders that cannot be used."""

import pytest

from cifar10.config import TrainConfig
from cifar10.errors import ConfigError
from cifar10.job import checkpoint_steps, open_output


@pytest.mark.parametrize(
    ("settings", "steps"),
    [
        ({"train_epochs": 10.0}, 450),
        ({"train_steps": 450}, 450),
        ({"train_steps": 100}, 100),
        ({"train_steps": 1}, 1),
        # 2.2 epochs: two checkpoints, the second of them at the end.
        ({"train_steps": 990}, 495),
        # 177.8 epochs: 178 checkpoints.
        ({}, 450),
        ({"checkpoint_steps": 7}, 7),
    ],
)
def test_a_checkpoint_is_saved_about_every_epoch_and_at_the_end(settings, steps):
    config = TrainConfig(train_batch_size=100, **settings)
    assert checkpoint_steps(config, 45_000) == steps


def test_the_output_and_log_folders_are_made(tmp_path):
    config = TrainConfig(output_dir=str(tmp_path / "a/b"), log_dir=str(tmp_path / "c/d"))
    open_output(config)
    assert list((tmp_path / "a/b").iterdir()) == []
    assert list((tmp_path / "c/d").iterdir()) == []


def test_an_output_folder_may_be_anywhere_that_gfile_opens():
    open_output(TrainConfig(output_dir="ram://new/output"))


def test_a_file_in_place_of_the_output_folder_is_refused(tmp_path):
    path = tmp_path / "output"
    path.write_text("a file")
    with pytest.raises(ConfigError, match=f"--output-dir {path} cannot be written to: "):
        open_output(TrainConfig(output_dir=str(path)))
    with pytest.raises(ConfigError, match=f"--log-dir {path} cannot be written to: "):
        open_output(TrainConfig(output_dir=str(tmp_path / "other"), log_dir=str(path)))


def test_a_place_of_an_unknown_kind_is_refused():
    with pytest.raises(ConfigError, match="--output-dir nowhere://output cannot be written to: "):
        open_output(TrainConfig(output_dir="nowhere://output"))
