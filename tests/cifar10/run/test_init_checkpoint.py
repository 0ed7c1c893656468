"""--init-checkpoint: which checkpoints are found, and what is loaded of them."""

import pathlib
from typing import Any

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from cifar10.config.train_config import TrainConfig
from cifar10.errors import ConfigError
from cifar10.output import checkpoints
from cifar10.run import init_checkpoint
from cifar10.step.devices import plan_devices
from cifar10.step.model_fn import variable_shapes
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
    config = TrainConfig(**{**MLP, **settings})
    return init_checkpoint.read(str(place), variable_shapes(config, 10))


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
        f"starting from {path} (step 7): 4 weights and statistics; steps and optimizer start anew"
    )
    assert start.as_dict() == {"path": path, "step": 7, "loaded": 4, "not_loaded": []}


def test_a_folder_stands_for_its_best_checkpoint_or_else_the_newest(tmp_path):
    save(tmp_path, 5)
    newest = save(tmp_path, 30)
    assert read(tmp_path).path == newest
    checkpoints.keep_if_best(str(tmp_path), str(tmp_path / "model.ckpt-5"), 5, 0.5)
    assert read(tmp_path).path == f"{tmp_path}/best/model.ckpt-5"


def test_another_number_of_classes_leaves_the_last_layer_out_and_says_so(tmp_path):
    path = save(
        tmp_path,
        model__dense_1__kernel=np.ones([4, 100], np.float32),
        model__dense_1__bias=np.ones([100], np.float32),
    )
    start = read(path)
    assert sorted(start.values) == ["model/dense/bias", "model/dense/kernel"]
    assert start.describe() == (
        f"starting from {path} (step 7): 2 weights and statistics; steps and optimizer, "
        "model/dense_1/kernel, model/dense_1/bias start anew"
    )
    assert start.as_dict()["not_loaded"] == ["model/dense_1/kernel", "model/dense_1/bias"]


def test_a_checkpoint_of_another_model_or_program_is_refused(tmp_path):
    path, way_out = (
        save(tmp_path / "run"),
        (
            "(None: there is none); give the flags that it was trained with, which its run.json or "
            "result.json names"
        ),
    )
    assert refusal(path, hidden_units=5) == (
        f"--init-checkpoint {path} is of another model: model/dense/kernel has the shape "
        f"(3072, 4) there, (3072, 5) here {way_out}"
    )
    path = save(tmp_path / "deeper", model__dense_2__kernel=np.ones([4], np.float32))
    assert "model/dense_2/kernel has the shape (4,) there, None here" in refusal(path)
    path = save(tmp_path / "other", **{name: None for name in SHAPES}, conv1=np.ones([3]))
    assert "model/dense/kernel has the shape None there, (3072, 4) here" in refusal(path)


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
    path = save(tmp_path / "run")
    (tmp_path / "folder").mkdir()
    for wrong in (f"{tmp_path}/nowhere", f"{path}.index", f"{tmp_path}/folder"):
        assert refusal(wrong) == (
            f"--init-checkpoint {wrong} is no checkpoint, and no folder with any; name a run's "
            "--output-dir, or a checkpoint without its ending, such as output/best/model.ckpt-80000"
        )


def test_training_starts_from_all_weights_statistics_and_averages(tmp_path):
    settings = {"num_layers": 8, "lookahead_steps": 2}
    config = TrainConfig(**settings, train_batch_size=2, num_towers=1, kernels="tensorflow")
    plan = plan_devices(config)
    with steps.training(config, plan, seed=5) as first:
        before = first.saved()
        path = first.save(tmp_path)
    start = init_checkpoint.read(str(path), variable_shapes(config, 10))
    values = {name: np.asarray(value) + 1 for name, value in start.values.items()}
    assert any(name.endswith("/moving_variance") for name in values)
    with steps.training(config, plan, seed=6, values=values) as second:
        after = second.saved()
    assert sorted(after) == sorted(before)
    for name, value in values.items():
        np.testing.assert_array_equal(after[name], value, err_msg=name)
        np.testing.assert_array_equal(after[f"{name}/Lookahead"], value, err_msg=name)
    assert after["global_step"] == after["examples_seen"] == 0
