"""--init-checkpoint: which checkpoints are found, and what is loaded of them."""

import pathlib
from typing import Any

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from cifar10.config.train_config import TrainConfig
from cifar10.errors import ConfigError
from cifar10.host.files import write_json
from cifar10.output import checkpoints, model_settings
from cifar10.run import init_checkpoint
from cifar10.step.devices import plan_devices
from tests.cifar10 import steps

MLP = {"model": "mlp", "hidden_units": 4}
SHAPES = {
    "model/dense/kernel": (3072, 4),
    "model/dense/bias": (4,),
    "model/dense_1/kernel": (4, 10),
    "model/dense_1/bias": (10,),
}


def save(folder: pathlib.Path, step: int = 7, **changes: Any) -> str:
    """Saves ones of SHAPES with their slots; `changes` by a name's part in the place of others."""
    arrays: dict[str, Any] = {name: np.ones(shape, np.float32) for name, shape in SHAPES.items()}
    arrays.update({f"{name}/Momentum": 2 * value for name, value in arrays.items()})
    arrays["global_step"] = np.int64(step)
    arrays.update({name.replace("__", "/"): value for name, value in changes.items()})
    folder.mkdir(parents=True, exist_ok=True)
    with tf.Graph().as_default(), tf.Session() as session:
        kept = {name: value for name, value in arrays.items() if value is not None}
        values = [tf.get_variable(name, initializer=value) for name, value in kept.items()]
        session.run(tf.global_variables_initializer())
        return str(tf.train.Saver(values).save(session, str(folder / "model.ckpt"), step))


def read(place: Any, **settings: Any) -> init_checkpoint.Start:
    config = TrainConfig(**{**MLP, **settings}, init_checkpoint=str(place))
    found = init_checkpoint.read(config, 10)
    assert found is not None
    return found


def refusal(place: Any, **settings: Any) -> str:
    with pytest.raises(ConfigError) as refused:
        read(place, **settings)
    message = str(refused.value)
    assert message.startswith("--init-checkpoint ")
    assert "\n" not in message
    return message


def test_weights_are_loaded_and_slots_and_steps_are_not(tmp_path):
    path = save(tmp_path)
    start = read(path)
    assert {name: value.shape for name, value in start.values.items()} == SHAPES
    assert start.describe() == (
        f"starting from {path} (step 7): all 4 weights and statistics; steps and optimizer start "
        "anew"
    )
    assert start.as_dict() == {"path": path, "step": 7, "loaded": 4, "not_loaded": []}


def test_a_folder_stands_for_its_best_checkpoint_or_else_the_newest(tmp_path):
    save(tmp_path, 5)
    newest = save(tmp_path, 30)
    assert read(tmp_path).path == newest
    (tmp_path / "checkpoint").unlink()
    assert read(tmp_path).path == newest
    checkpoints.keep_if_best(str(tmp_path), str(tmp_path / "model.ckpt-5"), 5, 0.5)
    assert read(tmp_path).path == f"{tmp_path}/best/model.ckpt-5"
    assert read(tmp_path / "best").path == f"{tmp_path}/best/model.ckpt-5"


def test_another_number_of_classes_leaves_the_last_layer_out_and_says_so(tmp_path):
    path = save(
        tmp_path,
        model__dense_1__kernel=np.ones([4, 100], np.float32),
        model__dense_1__bias=np.ones([100], np.float32),
    )
    start = read(path)
    assert sorted(start.values) == ["model/dense/bias", "model/dense/kernel"]
    assert start.describe() == (
        f"starting from {path} (step 7): 2 weights and statistics, but not the last layer, which "
        "starts anew like steps and optimizer: model/dense_1/kernel (4x100 there, 4x10 here), "
        "model/dense_1/bias (100 there, 10 here)"
    )
    assert start.as_dict()["not_loaded"] == ["model/dense_1/kernel", "model/dense_1/bias"]


def test_other_shapes_are_refused_with_the_flags_of_the_checkpoint(tmp_path):
    path = save(tmp_path)
    wrong = "model/dense/bias: 4 there, 5 here; model/dense/kernel: 3072x4 there, 3072x5 here"
    assert refusal(path, hidden_units=5) == (
        f"--init-checkpoint {path} is of another model ({wrong}); give the flags that it was "
        "trained with"
    )
    (tmp_path / "model.ckpt-7.index").rename(tmp_path / "kept")
    (tmp_path / "checkpoint").unlink()
    written = TrainConfig(**MLP, output_dir=str(tmp_path), optimizer="adam")
    model_settings.write(written, tuple("abcdefghij"))
    (tmp_path / "kept").rename(tmp_path / "model.ckpt-7.index")
    assert refusal(path, hidden_units=5) == (
        f"--init-checkpoint {path} is of another model ({wrong}); it was trained with "
        "--hidden-units=4"
    )
    assert refusal(path, model="resnet", hidden_units=None).endswith(
        " and 216 more); it was trained with --model=mlp --hidden-units=4"
    )


def test_a_checkpoint_of_another_program_is_refused(tmp_path):
    with tf.Graph().as_default(), tf.Session() as session:
        values = [tf.get_variable("conv1", [3]), tf.get_variable("note", initializer="text")]
        session.run(tf.global_variables_initializer())
        path = tf.train.Saver(values).save(session, str(tmp_path / "other"))
    assert refusal(path) == (
        f"--init-checkpoint {path} is not of this program: it has no variable model/..., but "
        "conv1; note; name one that cifar10_main.py has saved"
    )


def test_a_damaged_checkpoint_is_refused(tmp_path):
    path = save(tmp_path)
    data = tmp_path / "model.ckpt-7.data-00000-of-00001"
    content = bytearray(data.read_bytes())
    content[100] ^= 1
    data.write_bytes(content)
    assert refusal(path).startswith(f"--init-checkpoint {path} is damaged (")
    data.unlink()
    assert refusal(path) == (
        f"--init-checkpoint {path} is damaged (its data file is gone); restore its files, or name "
        "another one"
    )


def test_what_is_no_checkpoint_is_refused(tmp_path):
    way_out = "; name a folder with checkpoints, or a checkpoint without its ending"
    assert f"{tmp_path}/nowhere does not exist{way_out}" in refusal(tmp_path / "nowhere")
    path = save(tmp_path / "run")
    assert f"does not exist{way_out}" in refusal(f"{path}.index")
    write_json(str(tmp_path / "empty.json"), {})
    assert "does not exist" in refusal(tmp_path / "empty.json")
    (tmp_path / "folder").mkdir()
    assert "folder has no checkpoint; name another folder" in refusal(tmp_path / "folder")


def test_training_starts_from_all_weights_statistics_and_averages(tmp_path):
    settings = {"num_layers": 8, "lookahead_steps": 2}
    config = TrainConfig(**settings, train_batch_size=2, num_towers=1, kernels="tensorflow")
    plan = plan_devices(config)
    with steps.training(config, plan, seed=5) as first:
        before = first.saved()
        path = first.save(tmp_path)
    start = init_checkpoint.read(
        TrainConfig(**settings, train_batch_size=2, init_checkpoint=str(path)), 10
    )
    assert start is not None
    values = {name: np.asarray(value) + 1 for name, value in start.values.items()}
    assert any(name.endswith("/moving_variance") for name in values)
    with steps.training(config, plan, seed=6, values=values) as second:
        after = second.saved()
    assert sorted(after) == sorted(before)
    for name, value in values.items():
        np.testing.assert_array_equal(after[name], value, err_msg=name)
        np.testing.assert_array_equal(after[f"{name}/Lookahead"], value, err_msg=name)
    assert after["global_step"] == after["examples_seen"] == 0
