"""Recipes: files of settings that a flag beats, and that beat the defaults."""

import dataclasses

import pytest

from cifar10.config.flags import parse
from cifar10.config.settings_file import recipe_names

RECIPES = ["airbench94", "best", "fast", "resnet20", "resnet44", "tutorial"]


def test_each_file_of_the_folder_is_a_recipe():
    assert recipe_names() == RECIPES


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_is_a_configuration_that_names_it_and_is_printed_as_a_file(name, tmp_path, capsys):
    with pytest.raises(SystemExit) as ended:
        parse(["--print-recipe", name])
    assert ended.value.code == 0
    path = tmp_path / "mine.yaml"
    path.write_text(capsys.readouterr().out)
    found = parse([f"--recipe={name}"])
    assert (found.recipe, found.given) == (name, {"recipe"})
    assert dataclasses.replace(found, recipe=None) == parse(["--config", str(path)])


@pytest.mark.parametrize("words", [["--mode=predict", "cat.png"], ["--mode=export"]])
def test_modes_that_do_not_evaluate_take_a_recipe_without_its_augmentation(words):
    assert not parse(["--recipe=fast", *words]).test_time_augmentation
    assert parse(["--recipe=fast", "--mode=evaluate"]).test_time_augmentation


def test_airbench94_is_the_published_one():
    config = parse(["--recipe=airbench94"])
    # Jordan 2024: 11.5 and .0153 for 1,024 images, of which momentum makes 7.667 times as much.
    assert config.learning_rate * (1 + 1 / (1 - config.momentum)) == pytest.approx(11.5)
    assert config.weight_decay * 11.5 == pytest.approx(0.0153)
    assert (config.model, config.train_epochs, config.train_batch_size) == ("fastnet", 9.9, 1024)
    assert (config.label_smoothing, config.norm_bias_rate) == (0.2, 64)
    assert (config.crop_padding, config.crop_fill, config.flip) == (2, "reflect", "alternating")
    assert (config.lookahead_steps, config.whitening_bias_epochs) == (5, 3)
    assert config.test_time_augmentation


def test_the_tutorial_has_the_settings_of_tensorflow_models_cifar10_estimator():
    config = parse(["--recipe=tutorial"])
    assert (config.model, config.num_layers, config.residual_scale) == ("resnet", 44, 1)
    assert (config.train_steps, config.train_batch_size) == (80_000, 128)
    assert (config.optimizer, config.momentum) == ("momentum", 0.9)
    assert (config.learning_rate, config.learning_rate_batch) == (0.1, None)
    assert (config.schedule, config.warmup_epochs) == ("staged", 0)
    # An L2 loss of all that trains, normalisation and biases included.
    assert (config.weight_decay, config.decay_biases) == (2e-4, True)
    assert (config.batch_norm_decay, config.batch_norm_epsilon) == (0.997, 1e-5)
    assert (config.crop_padding, config.crop_fill, config.flip) == (4, "zeros", "random")


def test_a_flag_beats_the_recipe_wherever_it_stands():
    for argv in (
        ["--recipe=fast", "--momentum=0.9", "--train_batch_size", "512"],
        ["--train_batch_size", "512", "--momentum=0.9", "--recipe", "fast"],
    ):
        config = parse(argv)
        assert (config.momentum, config.train_batch_size) == (0.9, 512)
        assert (config.learning_rate, config.batch_norm_decay) == (1.656, 0.6)


@pytest.mark.parametrize(
    ("recipe", "flag", "left_out"),
    [
        ("fast", "--train-steps=5", {"train_epochs": None}),
        ("tutorial", "--train-epochs=2", {"train_steps": None}),
        ("fast", "--optimizer=adam", {"momentum": 0.9, "norm_bias_rate": 1.0}),
        ("fast", "--optimizer=nesterov", {"muon_rate": 0.24, "muon_momentum": 0.6}),
        ("fast", "--batch-norm=off", {"batch_norm_decay": 0.997, "optimizer": "momentum"}),
        ("fast", "--model=resnet_v2", {"optimizer": "momentum", "muon_rate": 0.24}),
        ("fast", "--batch-norm=off", {"learning_rate": None, "learning_rate_batch": None}),
        ("fast", "--use-distortion-for-training=false", {"crop_padding": 4, "flip": "random"}),
        ("best", "--use-distortion-for-training=false", {"crop_padding": 4, "cutout": 0}),
        ("fast", "--crop-padding=0", {"crop_fill": "zeros", "flip": "alternating"}),
        ("fast", "--model=mlp", {"norm_bias_rate": 1.0, "batch_norm_decay": 0.997}),
        ("resnet20", "--model=fastnet", {"num_layers": None, "learning_rate": None}),
        ("resnet20", "--optimizer=adam", {"learning_rate": None, "learning_rate_batch": None}),
        ("resnet20", "--optimizer=momentum", {"learning_rate": 0.1, "learning_rate_batch": 128}),
        ("fast", "--optimizer=nesterov", {"learning_rate": None}),
    ],
)
def test_a_flag_takes_settings_with_it_that_it_makes_pointless(recipe, flag, left_out):
    config = parse([f"--recipe={recipe}", flag])
    assert {name: getattr(config, name) for name in left_out} == left_out
