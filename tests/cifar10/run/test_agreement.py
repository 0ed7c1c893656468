"""What trainers must agree on."""

import pathlib

import pytest

from cifar10.config.train_config import TrainConfig
from cifar10.input.records import open_records
from cifar10.run.agreement import terms
from tests.cifar10 import record_files


@pytest.mark.parametrize(
    "setting",
    [
        {"train_batch_size": 32},
        {"sync": False},
        {"hidden_units": 50},
        {"schedule": "constant"},
        {"optimizer": "adam"},
        {"train_steps": 7},
        {"seed": 7},
    ],
    ids=str,
)
def test_trainers_agree_on_each_setting_that_decides_a_step(tutorial_data, setting):
    (name,) = setting
    records = open_records(str(tutorial_data))
    one = terms(TrainConfig(model="mlp"), records)
    other = terms(TrainConfig(model="mlp", **setting), records)
    flag = "--" + name.replace("_", "-")
    assert {key for key in one if one[key] != other[key]} == {flag}
    assert other[flag] == str(setting[name])


def test_trainers_agree_on_the_records_and_not_on_their_machines(tutorial_data, tmp_path):
    place: pathlib.Path = tmp_path / "data"
    record_files.write_numbered(place, "train", 20)
    one = terms(TrainConfig(num_towers=2), open_records(str(tutorial_data)))
    other = terms(TrainConfig(output_dir="elsewhere"), open_records(str(place)))
    assert {key for key in one if one[key] != other[key]} == {"the training records"}
