"""An output folder knows its model: training continues it or refuses, the other modes take it."""

import json
import pathlib
from typing import Any

import pytest

from cifar10.config.flags import parse
from cifar10.config.train_config import TrainConfig
from cifar10.errors import ConfigError, DamagedError, UserError
from cifar10.output import model_settings, run_file
from cifar10.schema import CLASS_NAMES
from tests.cifar10.saved import save

NAMES = tuple(f"shape-{index}" for index in range(10))


def config(folder: pathlib.Path, **settings: Any) -> TrainConfig:
    return TrainConfig(output_dir=str(folder), **settings)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    folder = tmp_path_factory.mktemp("run")
    save(folder, 5)
    return folder


@pytest.fixture
def trained(checkpoint, tmp_path):
    """A folder with a checkpoint of a ResNet-8 on drawn shapes."""
    for path in checkpoint.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    model_settings.write(config(tmp_path, num_layers=8, optimizer="nesterov"), NAMES)
    return tmp_path


def test_other_modes_need_not_repeat_the_model(trained):
    applied, names = model_settings.apply(config(trained, mode="evaluate"))
    assert (applied.model, applied.layers, applied.optimizer) == ("resnet", 8, "nesterov")
    assert names == NAMES


def test_images_of_other_sizes_are_resized_as_those_of_training(tmp_path):
    asked = config(tmp_path, mode="export")
    assert model_settings.resize_of(asked) == "stretch"
    model_settings.write(config(tmp_path, model="mlp"), CLASS_NAMES)
    assert model_settings.resize_of(asked) == "stretch"
    model_settings.write(config(tmp_path, model="mlp"), CLASS_NAMES, resize="crop")
    assert model_settings.resize_of(asked) == "crop"


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("output_dir", "/", "'output_dir' is no setting of a network"),
        ("num_layers", [8], r"num_layers must be a whole number, got '\[8\]'"),
        ("lookahead_steps", -1, "lookahead_steps must be at least 0, got -1"),
    ],
)
def test_what_is_no_setting_of_a_network_is_not_applied(trained, name, value, why):
    path = trained / "run.json"
    content = json.loads(path.read_text())
    content["settings"][name] = value
    path.write_text(json.dumps(content))
    with pytest.raises(DamagedError, match=rf"/run.json is damaged \({why}\); move it away"):
        model_settings.apply(config(trained, mode="evaluate"))


@pytest.mark.parametrize(("what", "name"), [("model", "vgg"), ("optimizer", "sign")])
def test_what_the_users_script_registers_is_named_where_it_lacks(trained, what, name):
    run = run_file.read(str(trained))
    run_file.update(str(trained), settings={**run.settings, what: name})
    message = f"^{trained} was trained with the {what} {name}, .* `python own.py --mode predict`$"
    with pytest.raises(ConfigError, match=message):
        model_settings.apply(config(trained, mode="predict", images=("a.png",)))


@pytest.mark.parametrize(
    "use", [model_settings.apply, lambda asked: model_settings.check_same(asked, NAMES)]
)
def test_settings_of_another_version_are_refused(trained, use):
    path = trained / "run.json"
    content = json.loads(path.read_text())
    del content["settings"]["lookahead_steps"]
    path.write_text(json.dumps(content))
    why = rf"^{path} is of another version .* \(its settings have no lookahead_steps\); name"
    with pytest.raises(UserError, match=why):
        use(config(trained))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"num_layers": 20}, "holds a model with --num-layers=8, this run has 20"),
        ({"model": "mlp"}, "--model=resnet, this run has mlp"),
        ({"num_layers": 8, "optimizer": "adam"}, "--optimizer=nesterov, this run has adam"),
        ({"num_layers": 8, "batch_norm": "off"}, "--batch-norm=tower, this run has off"),
    ],
    ids=["layers", "family", "optimizer", "normalisation"],
)
def test_training_does_not_continue_another_model(trained, settings, message):
    with pytest.raises(ConfigError) as refused:
        model_settings.check_same(config(trained, **settings), NAMES)
    assert message in str(refused.value)
    assert "another --output-dir" in str(refused.value)
    # The note still says what the checkpoints hold.
    assert model_settings.apply(config(trained, mode="evaluate"))[0].layers == 8


@pytest.mark.parametrize("settings", [{"optimizer": "momentum"}, {"learning_rate": 0.01}])
def test_training_continues_with_settings_that_leave_the_variables_as_they_are(trained, settings):
    model_settings.check_same(
        config(trained, num_layers=8, **{"optimizer": "nesterov", **settings}), NAMES
    )


def test_training_does_not_continue_with_labels_that_mean_other_classes(trained):
    swapped = (NAMES[0], NAMES[2], NAMES[1], *NAMES[3:])
    with pytest.raises(ConfigError) as error:
        model_settings.check_same(config(trained, num_layers=8), swapped)
    assert str(error.value) == (
        f"{trained} holds a model for which label 1 is 'shape-1'; in these records it is "
        "'shape-2'; name the records that it was trained on, or another --output-dir"
    )
    model_settings.check_same(config(trained, num_layers=8), NAMES)


def test_a_flag_that_says_its_default_is_refused_where_the_note_says_otherwise(trained):
    words = [f"--output-dir={trained}", "--mode=evaluate"]
    assert model_settings.apply(parse(words))[0].optimizer == "nesterov"
    with pytest.raises(ConfigError, match="--optimizer=nesterov, got momentum; leave --optimizer"):
        model_settings.apply(parse([*words, "--optimizer=momentum"]))


def test_the_note_of_another_folders_checkpoint_is_found_beside_it_or_above_best(trained, tmp_path):
    elsewhere = tmp_path / "elsewhere"
    for name in ("model.ckpt-5", "best/model.ckpt-5"):
        asked = config(elsewhere, mode="evaluate", checkpoint=str(trained / name))
        assert model_settings.apply(asked)[0].layers == 8
