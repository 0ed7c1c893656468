"""TrainConfig: what a run may be, and what is refused by name."""

import os
from typing import Any

import pytest

from cifar10.config.settings import settings_of
from cifar10.config.train_config import TrainConfig, TrainingPosition
from cifar10.errors import ConfigError


def test_defaults_are_the_tutorials_but_for_how_the_rate_starts_and_ends():
    config = TrainConfig()
    assert config.model == "resnet"
    assert config.layers == 44
    assert config.total_steps(45_000, 128) == 80_000
    assert (config.train_batch_size, config.eval_batch_size) == (128, 100)
    assert (config.optimizer, config.momentum, config.weight_decay) == ("momentum", 0.9, 2e-4)
    assert (config.learning_rate, config.learning_rate_batch) == (None, None)
    assert (config.schedule, config.warmup_epochs, config.residual_scale) == ("cosine", None, None)
    assert (config.batch_norm_decay, config.batch_norm_epsilon) == (0.997, 1e-5)
    assert config.use_distortion_for_training
    assert (config.variable_strategy, config.sync) == ("CPU", True)
    assert (config.data_dir, config.output_dir) == ("data", "output")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"num_layers": 43}, "--num-layers must be 6n+2 (8, 14, 20, 32, 44, ...), got 43"),
        ({"data_dir": ""}, "--data-dir must not be empty; leave it out for the default"),
        ({"output_dir": "o\0"}, "--output-dir must not contain a NUL, got 'o\\x00'"),
        (
            {"data_dir": "o\udcff"},
            "--data-dir must be UTF-8, as TensorFlow's paths are, got 'o\\udcff'; rename it, or",
        ),
        ({"output_dir": "runs/lr[0.1]"}, "--output-dir must not contain *, ?, [ or \\, which"),
        ({"init_checkpoint": "lr?"}, "--init-checkpoint must not contain *, ?, [ or \\, which"),
        *(
            (
                {"profile_steps": steps},
                "--profile-steps must be the first and the last step in order, from 1 on: 100:110, "
                f"got '{steps}'",
            )
            for steps in ("9", "0:5", "110:100")
        ),
        *(
            (
                {"stop_at_accuracy": fraction},
                "--stop-at-accuracy must be a fraction above 0 and at most 1 (0.9 for 90 %), got "
                f"{fraction}",
            )
            for fraction in (0.0, 90.0)
        ),
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


def test_every_number_has_a_range_or_a_form_and_keeps_to_it():
    found = settings_of(TrainConfig)
    for name in (name for name, setting in found.items() if setting.kind in (int, float)):
        setting = found[name]
        outside: list[float] = []
        if setting.at_least is not None:
            outside.append(setting.at_least - 1)
        outside += [limit for limit in (setting.above, setting.below) if limit is not None]
        if setting.at_most is not None:
            outside.append(setting.at_most + 1)
        assert outside or setting.form or name == "num_layers", name
        for value in map(setting.kind, outside):
            settings: dict[str, Any] = {name: value}
            with pytest.raises(ConfigError) as refusal:
                TrainConfig(**settings)
            flag = f"--{name.replace('_', '-')}"
            assert str(refusal.value) == f"{flag} must be {setting.rule}, got {value}"


@pytest.mark.parametrize(
    ("settings", "flags"),
    [
        ({"train_steps": 10, "train_epochs": 1.0}, ["--train-steps", "--train-epochs"]),
        (
            {"optimizer": "muon", "model": "resnet_v2"},
            [
                "--optimizer muon is for --model resnet or fastnet or fastnet_large, got --model "
                "resnet_v2; --optimizer nesterov, with another --output-dir, trains every model"
            ],
        ),
        ({"optimizer": "muon", "batch_norm": "off"}, ["--optimizer muon", "--batch-norm off"]),
        ({"mode": "predict"}, ["--mode predict needs image files"]),
        ({"images": ("cat.png",)}, ["cat.png", "--mode predict", "train_and_evaluate"]),
        (
            {"mode": "export", "test_time_augmentation": True},
            ["--test-time-augmentation true is for --mode train_and_evaluate or evaluate, got "]
            + ["--mode export; leave it out"],
        ),
        (
            {"decay_biases": True, "weight_decay": 0.0},
            ["--decay-biases true has no effect beside --weight-decay 0.0; leave it out"],
        ),
        ({"checkpoint": "output/model.ckpt-5"}, ["--checkpoint", "continues by itself"]),
        ({"variable_strategy": "GPU", "num_gpus": 0}, ["--variable-strategy GPU", "--num-gpus"]),
        ({"num_towers": 3}, ["--train-batch-size", "128 images for 3 towers"]),
        ({"replicas_to_aggregate": 2, "sync": False}, ["--replicas-to-aggregate", "--sync"]),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, dict) else "",
)
def test_flags_that_contradict_each_other_are_refused(settings: dict[str, Any], flags: list[str]):
    with pytest.raises(ConfigError) as refusal:
        TrainConfig(**settings)
    for flag in flags:
        assert flag in str(refusal.value)


def test_what_has_an_effect_or_does_no_harm_is_accepted():
    assert TrainConfig(cutout=32, profile_steps="5:5").profile_window == (5, 5)
    TrainConfig(mode="evaluate", num_towers=3)
    TrainConfig(use_distortion_for_training=False, explicit=["use_distortion_for_training"])
    TrainConfig(mode="export", test_time_augmentation=False, explicit=["test_time_augmentation"])
    assert TrainConfig().steps_between_rows(total_steps=101) == 2


def test_an_epoch_ends_a_run_after_every_image():
    assert TrainConfig(train_epochs=1.0).total_steps(45_000, 100) == 450
    assert TrainConfig(train_epochs=1.0).total_steps(45_000, 128) == 352
    assert TrainConfig(train_epochs=0.001).total_steps(1_000, 128) == 1
    assert TrainConfig(train_epochs=0.001).total_steps(0, 128) == 1
    # What was seen before counts, whatever the batches were.
    assert TrainConfig(train_epochs=1.0).total_steps(1_280, 128, TrainingPosition(9, 640)) == 14
    # 2.2 * 45000 is 99000.00000000001.
    assert TrainConfig(train_epochs=2.2).total_steps(45_000, 100) == 990


def test_relative_paths_start_from_the_work_dir():
    config = TrainConfig(work_dir="/job", log_dir="logs")
    assert config.data_path == "/job/data"
    assert config.output_path == "/job/output"
    assert config.log_path == "/job/logs"
    assert config.resolve("cat.png") == "/job/cat.png"
    assert config.resolve("gs://bucket/a") == "gs://bucket/a"


def test_a_path_that_the_locale_cannot_encode_is_refused(monkeypatch):
    monkeypatch.setattr(os, "fsencode", lambda path: path.encode("latin-1"))
    with pytest.raises(ConfigError, match="--output-dir must be UTF-8, .*; rename it, or set PYTH"):
        TrainConfig(output_dir="ausgäbe")


def test_a_home_that_the_shell_has_left_is_found(monkeypatch):
    monkeypatch.setenv("HOME", "/home/me")
    assert TrainConfig(output_dir="~/runs/a").output_path == "/home/me/runs/a"
    config = TrainConfig(work_dir="~/job", data_dir="~")
    assert (config.data_path, config.output_path) == ("/home/me", "/home/me/job/output")
    assert config.resolve("a~b") == "/home/me/job/a~b"
