"""TrainConfig: what a run may be, and what is refused by name."""

import dataclasses
import math
from typing import Any

import pytest

from cifar10.config import TrainConfig
from cifar10.errors import ConfigError


def test_defaults_are_the_tutorials():
    config = TrainConfig()
    assert config.model == "resnet"
    assert config.layers == 44
    assert config.total_steps(45_000) == 80_000
    assert (config.train_batch_size, config.eval_batch_size) == (128, 100)
    assert (config.optimizer, config.momentum, config.weight_decay) == ("momentum", 0.9, 2e-4)
    assert (config.learning_rate, config.schedule) == (0.1, "staged")
    assert (config.batch_norm_decay, config.batch_norm_epsilon) == (0.997, 1e-5)
    assert config.use_distortion_for_training
    assert (config.variable_strategy, config.sync) == ("CPU", False)
    assert (config.data_dir, config.output_dir) == ("data", "output")


def test_a_cluster_is_joined_by_flags_only_if_they_say_so():
    config = TrainConfig()
    assert (config.ps_hosts, config.worker_hosts) == (None, None)
    assert (config.job_name, config.task_index) == (None, None)
    assert (config.replication, config.replicas_to_aggregate) == ("between-graph", None)
    assert (config.ps_transfer, config.check_address) == ("fp32", True)
    assert (config.cluster_timeout, config.worker_delay_secs) == (300.0, 0.0)


def test_nothing_is_unset_by_minus_one():
    for field in dataclasses.fields(TrainConfig):
        assert field.default != -1, field.name


def test_a_config_cannot_be_changed():
    with pytest.raises(dataclasses.FrozenInstanceError):
        TrainConfig().seed = 2


def test_every_setting_says_what_it_is():
    for field in dataclasses.fields(TrainConfig):
        assert field.metadata["help"], field.name
        assert field.metadata["group"], field.name


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"num_layers": 43}, "--num-layers must be 6n+2 (8, 14, 20, 32, 44, ...), got 43"),
        ({"num_layers": 2}, "--num-layers must be 6n+2 (8, 14, 20, 32, 44, ...), got 2"),
        ({"model": "vgg"}, "--model must be one of resnet, resnet_v2, fastnet, mlp, got vgg"),
        ({"mode": "serve"}, "--mode must be one of train_and_evaluate, evaluate, predict, export,"),
        ({"precision": "int8"}, "--precision must be one of fp32, bf16, fp16, got int8"),
        ({"data_format": "NHWC"}, "--data-format must be one of channels_last, channels_first,"),
        ({"train_batch_size": 0}, "--train-batch-size must be at least 1, got 0"),
        ({"eval_batch_size": -1}, "--eval-batch-size must be at least 1, got -1"),
        ({"train_steps": 0}, "--train-steps must be at least 1, got 0"),
        ({"train_epochs": 0.0}, "--train-epochs must be above 0, got 0.0"),
        ({"keep_checkpoints": 0}, "--keep-checkpoints must be at least 1, got 0"),
        ({"learning_rate": 0.0}, "--learning-rate must be above 0, got 0.0"),
        ({"learning_rate": math.nan}, "--learning-rate must be above 0, got nan"),
        ({"train_epochs": math.inf}, "--train-epochs must be above 0, got inf"),
        ({"momentum": 1.0}, "--momentum must be at least 0 and below 1, got 1.0"),
        ({"batch_norm_decay": 1.5}, "--batch-norm-decay must be at least 0 and below 1, got 1.5"),
        ({"batch_norm_epsilon": 0.0}, "--batch-norm-epsilon must be above 0, got 0.0"),
        ({"weight_decay": -1e-4}, "--weight-decay must be at least 0, got -0.0001"),
        ({"num_gpus": -1}, "--num-gpus must be at least 0, got -1"),
        ({"num_towers": 0}, "--num-towers must be at least 1, got 0"),
        ({"num_inter_threads": -1}, "--num-inter-threads must be at least 0, got -1"),
        ({"cutout": 33}, "--cutout must be at most 32, got 33"),
        ({"crop_padding": 32}, "--crop-padding must be below 32, got 32"),
        ({"crop_padding": -1}, "--crop-padding must be at least 0, got -1"),
        ({"flip": "never"}, "--flip must be one of random, alternating, got never"),
        ({"crop_fill": "white"}, "--crop-fill must be one of zeros, reflect, got white"),
        ({"label_smoothing": 1.0}, "--label-smoothing must be at least 0 and below 1, got 1.0"),
        ({"lookahead_steps": -1}, "--lookahead-steps must be at least 0, got -1"),
        ({"learning_rate_batch": 0}, "--learning-rate-batch must be at least 1, got 0"),
        ({"norm_bias_rate": -1.0}, "--norm-bias-rate must be at least 0, got -1.0"),
        ({"recipe": "slow"}, "--recipe must be one of fast, airbench94, reference, resnet20, "),
        ({"seed": 2**31}, "--seed must be below 2**31, got 2147483648"),
        ({"max_minutes": 0.0}, "--max-minutes must be above 0, got 0.0"),
        ({"task_index": -1}, "--task-index must be at least 0, got -1"),
        ({"job_name": "boss"}, "--job-name must be one of ps, worker, master, chief, evaluator,"),
        (
            {"replicas_to_aggregate": 0, "sync": True},
            "--replicas-to-aggregate must be at least 1, got 0",
        ),
        ({"replication": "both"}, "--replication must be one of between-graph, in-graph, got both"),
        ({"ps_transfer": "int8"}, "--ps-transfer must be one of fp32, bf16, got int8"),
        ({"cluster_timeout": 0.0}, "--cluster-timeout must be above 0, got 0.0"),
        ({"worker_delay_secs": -1.0}, "--worker-delay-secs must be at least 0, got -1.0"),
        ({"data_dir": ""}, "--data-dir must not be empty; leave it out for the default"),
        ({"output_dir": "runs/lr[0.1]"}, "--output-dir must not contain *, ?, [ or \\, which"),
        (
            {"work_dir": "/runs/a*", "data_dir": "/data"},
            "--output-dir must not contain *, ?, [ or \\, which TensorFlow takes for patterns, "
            "got /runs/a*/output",
        ),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, dict) else "",
)
def test_a_value_out_of_range_is_refused_by_name(settings: dict[str, Any], message: str):
    with pytest.raises(ConfigError) as refusal:
        TrainConfig(**settings)
    assert str(refusal.value).startswith(message)


@pytest.mark.parametrize(
    ("settings", "flags"),
    [
        ({"train_steps": 10, "train_epochs": 1.0}, ["--train-steps", "--train-epochs"]),
        ({"model": "mlp", "num_layers": 20}, ["--num-layers", "--model mlp"]),
        ({"model": "resnet", "hidden_units": 50}, ["--hidden-units", "--model mlp"]),
        ({"model": "mlp", "batch_norm": "sync"}, ["--batch-norm", "--model mlp"]),
        ({"model": "mlp", "batch_norm_decay": 0.9}, ["--batch-norm-decay", "--model mlp"]),
        ({"model": "mlp", "batch_norm_epsilon": 0.1}, ["--batch-norm-epsilon", "--model mlp"]),
        ({"batch_norm": "off", "batch_norm_decay": 0.9}, ["--batch-norm-decay", "off"]),
        ({"batch_norm": "off", "batch_norm_epsilon": 0.1}, ["--batch-norm-epsilon", "off"]),
        ({"optimizer": "adam", "momentum": 0.95}, ["--momentum", "adam"]),
        ({"optimizer": "adam", "norm_bias_rate": 64.0}, ["--norm-bias-rate", "adam"]),
        ({"muon_rate": 0.1}, ["--muon-rate is for --optimizer muon", "momentum"]),
        ({"optimizer": "adam", "muon_momentum": 0.1}, ["--muon-momentum", "muon", "adam"]),
        ({"optimizer": "muon", "model": "mlp"}, ["--optimizer muon", "--model mlp"]),
        ({"optimizer": "muon", "batch_norm": "off"}, ["--optimizer muon", "--batch-norm off"]),
        ({"model": "mlp", "norm_bias_rate": 64.0}, ["--norm-bias-rate", "--model mlp"]),
        ({"model": "fastnet", "num_layers": 20}, ["--num-layers", "--model fastnet"]),
        ({"whitening_bias_epochs": 1.0}, ["--whitening-bias-epochs", "--model fastnet"]),
        (
            {"flip": "alternating", "use_distortion_for_training": False},
            ["--flip", "--use-distortion-for-training"],
        ),
        ({"mode": "predict"}, ["--mode predict needs image files"]),
        ({"images": ("cat.png",)}, ["cat.png", "--mode predict", "train_and_evaluate"]),
        ({"checkpoint": "output/model.ckpt-5"}, ["--checkpoint", "continues by itself"]),
        ({"autotune": True, "mode": "evaluate"}, ["--autotune is for training", "--mode evaluate"]),
        ({"variable_strategy": "GPU", "num_gpus": 0}, ["--variable-strategy GPU", "--num-gpus"]),
        ({"num_gpus": 2, "num_towers": 3}, ["--num-towers", "--num-gpus"]),
        ({"num_towers": 3}, ["--train-batch-size", "128 images for 3 towers"]),
        (
            {"cutout": 8, "use_distortion_for_training": False},
            ["--cutout", "--use-distortion-for-training"],
        ),
        ({"replicas_to_aggregate": 2}, ["--replicas-to-aggregate", "--sync"]),
        (
            {"replicas_to_aggregate": 2, "sync": True, "replication": "in-graph"},
            ["--replicas-to-aggregate", "--replication between-graph"],
        ),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, dict) else "",
)
def test_flags_that_contradict_each_other_are_refused(settings: dict[str, Any], flags: list[str]):
    with pytest.raises(ConfigError) as refusal:
        TrainConfig(**settings)
    for flag in flags:
        assert flag in str(refusal.value)


def test_an_epoch_ends_a_run_after_every_image():
    assert TrainConfig(train_epochs=1.0, train_batch_size=100).total_steps(45_000) == 450
    assert TrainConfig(train_epochs=1.0, train_batch_size=128).total_steps(45_000) == 352
    assert TrainConfig(train_epochs=0.001, train_batch_size=128).total_steps(1_000) == 1


def test_epochs_are_not_prolonged_by_rounding_errors():
    # 2.2 * 45000 is 99000.00000000001.
    assert TrainConfig(train_epochs=2.2, train_batch_size=100).total_steps(45_000) == 990


def test_relative_paths_start_from_the_work_dir():
    config = TrainConfig(work_dir="/job", log_dir="logs")
    assert config.data_place == "/job/data"
    assert config.output_place == "/job/output"
    assert config.log_place == "/job/logs"
    assert config.place("cat.png") == "/job/cat.png"


def test_absolute_paths_and_urls_do_not_move_with_the_work_dir():
    config = TrainConfig(work_dir="/job", data_dir="gs://bucket/data", output_dir="/data/output")
    assert config.data_place == "gs://bucket/data"
    assert config.output_place == "/data/output"


def test_without_a_work_dir_paths_stay_as_given():
    assert TrainConfig().data_place == "data"


def test_event_files_go_to_the_output_dir_unless_a_log_dir_is_given():
    assert TrainConfig(output_dir="/out").log_place == "/out"
    assert TrainConfig(output_dir="/out", log_dir="/logs").log_place == "/logs"


def test_models_have_titles_for_people():
    assert TrainConfig().model_title == "ResNet-44 v1"
    assert TrainConfig(model="resnet_v2", num_layers=20).model_title == "ResNet-20 v2"
    assert TrainConfig(model="mlp").model_title == "MLP, 100 hidden units"
