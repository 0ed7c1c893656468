"""The first weights by --init-checkpoint."""

import pathlib
from typing import Any

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from cifar10.config.train_config import TrainConfig
from cifar10.errors import ConfigError
from cifar10.output import checkpoints
from cifar10.run import start
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
        values = [tf.get_variable(name, initializer=value) for name, value in arrays.items()]
        session.run(tf.global_variables_initializer())
        return str(tf.train.Saver(values).save(session, str(folder / "model.ckpt"), step))


def read(place: Any, **settings: Any) -> Any:
    config = TrainConfig(**{**MLP, **settings})
    return start._read_weights(str(place), variable_shapes(config, 10), 10)


def refusal(place: Any, **settings: Any) -> str:
    with pytest.raises(ConfigError, match="^--init-checkpoint ") as refused:
        read(place, **settings)
    assert "\n" not in str(refused.value)
    return str(refused.value)


def test_a_folder_stands_for_its_best_checkpoint_or_else_the_newest(tmp_path, capsys):
    save(tmp_path, 5)
    path = save(tmp_path, 30)
    values = read(tmp_path)
    assert {name: value.shape for name, value in values.items()} == SHAPES  # without slots
    assert capsys.readouterr().out == f"4 weights and statistics are from {path}\n"
    checkpoints.keep_if_best(str(tmp_path), str(tmp_path / "model.ckpt-5"), 5, 0.5)
    read(tmp_path)
    assert capsys.readouterr().out.endswith(f" are from {tmp_path}/best/model.ckpt-5\n")


def test_another_number_of_classes_leaves_each_last_layer_out(tmp_path, capsys):
    """Whichever of a model's variables comes last: an auxiliary head has one, too."""
    heads = ("model/dense_1/kernel", "model/auxiliary/kernel", "model/dense_1/bias")
    there = {name: np.ones([100] if "bias" in name else [4, 100]) for name in heads}
    path = save(tmp_path, **there, model__scale=np.ones([2]))
    here = {**SHAPES, "model/auxiliary/kernel": (4, 10), "model/scale": (2,)}
    values = start._read_weights(path, here, 10)
    assert sorted(values) == ["model/dense/bias", "model/dense/kernel", "model/scale"]
    assert ", but not " in capsys.readouterr().out
    with pytest.raises(ConfigError, match=r"model/scale has the shape \(2,\) there, \(3,\) here"):
        start._read_weights(path, {**here, "model/scale": (3,)}, 10)


def test_a_checkpoint_of_another_model_is_refused(tmp_path):
    path = save(tmp_path / "run")
    assert refusal(path, hidden_units=5) == (
        f"--init-checkpoint {path} is of another model: model/dense/kernel has the shape "
        "(3072, 4) there, (3072, 5) here (None: there is none); give the flags that it was trained "
        "with, which its run.json or result.json names"
    )
    path = save(tmp_path / "deeper", model__dense_2__kernel=np.ones([4], np.float32))
    assert "model/dense_2/kernel has the shape (4,) there, None here" in refusal(path)


def test_what_is_no_sound_checkpoint_is_refused(tmp_path):
    path = save(tmp_path / "run")
    way_out = (
        "name a run's --output-dir, or a checkpoint without its ending, such as "
        "output/best/model.ckpt-80000"
    )
    for wrong in (f"{tmp_path}/nowhere", f"{path}.index"):
        assert refusal(wrong) == (
            f"--init-checkpoint {wrong} cannot be used (no checkpoint, and no folder with any); "
            f"{way_out}"
        )
    (tmp_path / "run/model.ckpt-7.data-00000-of-00001").unlink()
    assert refusal(path) == (
        f"--init-checkpoint {path} cannot be used (its data file is gone); {way_out}"
    )


def test_training_starts_from_all_weights_statistics_and_averages(tmp_path):
    settings = {"num_layers": 8, "lookahead_steps": 2}
    config = TrainConfig(**settings, train_batch_size=2, num_towers=1, kernels="tensorflow")
    plan = steps.make_plan(1, 2)
    with steps.training(config, plan, seed=5) as first:
        before = first.saved()
        path = first.save(tmp_path)
    found = start._read_weights(str(path), variable_shapes(config, 10), 10)
    values = {name: np.asarray(value) + 1 for name, value in found.items()}
    assert any(name.endswith("/moving_variance") for name in values)
    with steps.training(config, plan, seed=6, values=values) as second:
        after = second.saved()
    assert sorted(after) == sorted(before)
    for name, value in values.items():
        np.testing.assert_array_equal(after[name], value, err_msg=name)
        np.testing.assert_array_equal(after[f"{name}/Lookahead"], value, err_msg=name)
    assert after["global_step"] == after["examples_seen"] == 0
