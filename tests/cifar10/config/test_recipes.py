"""Recipes: files of settings that flags override, and that override the defaults."""

import dataclasses

import pytest

from cifar10.config.flags import parse
from cifar10.config.settings_file import recipe_file, recipe_names
from cifar10.errors import ConfigError

RECIPES = ["airbench94", "best", "fast", "paper", "resnet20", "resnet44", "tutorial"]


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
    assert (found.recipe, found.explicit) == (name, {"recipe"})
    assert dataclasses.replace(found, recipe=None) == parse(["--config", str(path)])


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_goes_with_other_lengths_devices_clusters_and_modes(name):
    for words in (
        "--train-steps=5 --precision=bf16 --num-towers=2",
        "--train-epochs=2 --replication=in-graph --num-workers=2",
        "--ps-hosts=p:1 --worker-hosts=a:1,b:1 --job-name=worker --task-index=1",
        "--mode=evaluate",
        "--mode=predict cat.png",
        "--mode=export",
    ):
        config = parse([f"--recipe={name}", *words.split()])
        if "--train" in words:
            assert {config.train_steps, config.train_epochs} in ({5, None}, {2, None})
        if config.mode in ("predict", "export"):  # which do not evaluate
            assert not config.test_time_augmentation


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


def test_a_changed_copy_is_the_way_out_for_a_setting_without_effect(tmp_path):
    with pytest.raises(ConfigError) as refusal:
        parse(["--recipe=fast", "--crop-padding=0"])
    assert str(refusal.value) == (
        "crop_fill reflect of --recipe fast has no effect beside --crop-padding 0; leave "
        "--crop-padding 0 out, or give --config a copy of the recipe (--print-recipe fast) without "
        "crop_fill"
    )
    copy = tmp_path / "mine.yaml"
    copy.write_text(recipe_file("fast").read_text().replace("crop_fill: reflect", ""))
    config = parse([f"--config={copy}", "--crop-padding=0"])
    assert (config.crop_fill, config.flip, config.muon_rate) == ("zeros", "alternating", 0.24)
