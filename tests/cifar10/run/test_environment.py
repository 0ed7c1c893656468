"""result.json says what a result depends on: settings in force, versions, hardware."""

import dataclasses

import pytest

from cifar10.config.train_config import TrainConfig
from cifar10.run import environment
from cifar10.step import devices
from cifar10.step.devices import plan_devices
from cifar10.step.params import ModelParams, Replication


def test_every_setting_is_there_by_name():
    config = TrainConfig(num_gpus=0)
    described = environment.describe_config(ModelParams(config, plan_devices(config)))
    assert set(described) == {field.name for field in dataclasses.fields(TrainConfig)}
    assert described["weight_decay"] == 2e-4


def test_what_was_left_to_choose_is_given_as_chosen():
    config = TrainConfig(num_gpus=0, num_towers=1, num_inter_threads=3, num_intra_threads=2)
    described = environment.describe_config(ModelParams(config, plan_devices(config)))
    assert described["num_layers"] == 44
    assert described["hidden_units"] is None
    assert described["data_format"] == "channels_last"
    assert (described["num_gpus"], described["num_towers"]) == (0, 1)
    assert (described["num_inter_threads"], described["num_intra_threads"]) == (3, 2)


def test_what_was_left_to_fit_the_model_and_the_step_is_given_as_it_was():
    config = TrainConfig(num_gpus=0, num_layers=20, train_batch_size=64)
    params = ModelParams(config, plan_devices(config), num_examples=6_400, total_steps=1_000)
    described = environment.describe_config(params)
    assert (described["learning_rate"], described["learning_rate_batch"]) == (0.05, 64)
    assert described["warmup_epochs"] == 0.227273  # 0.5 * 20 / 44
    assert described["residual_scale"] == 0.57735
    asynchronous = Replication(("/cpu:0",), ("/cpu:0",), num_replicas=3)
    described = environment.describe_config(dataclasses.replace(params, replication=asynchronous))
    assert described["learning_rate"] == 0.022  # of 20 layers and two others


@pytest.mark.parametrize(
    ("settings", "used"),
    [
        ({"num_layers": 8}, "own"),
        ({"num_layers": 8, "kernels": "tensorflow"}, "tensorflow"),
        ({"model": "mlp"}, "tensorflow"),
    ],
)
def test_kernels_are_given_as_they_were_used(monkeypatch, settings, used):
    monkeypatch.setattr(devices.library, "why_not", lambda flags: None)
    config = TrainConfig(num_gpus=0, **settings)
    assert environment.describe_config(ModelParams(config, plan_devices(config)))["kernels"] == used
