"""NaN and infinite losses and weights end training before anything of them is saved."""

import math
import pathlib
import types
from typing import Any

import pytest
import tensorflow.compat.v1 as tf

from cifar10.errors import TrainingError
from cifar10.output import checkpoints
from cifar10.run.hooks.finite import FiniteLossHook, FiniteWeightsListener
from cifar10.step import training_step


def job_in(folder: pathlib.Path) -> Any:
    """What the hooks need of a job with batches of 64 images."""
    return types.SimpleNamespace(
        config=types.SimpleNamespace(output_place=str(folder)),
        params=types.SimpleNamespace(examples_per_step=64),
    )


def train(folder: pathlib.Path, *, losses: list[float], weights: list[float]) -> None:
    """Takes a step for each loss, after which the weight has the value beside it; saves each."""
    job = job_in(folder)
    with tf.Graph().as_default():
        step = tf.train.create_global_step()
        weight = tf.get_variable("weight", initializer=1.0)
        loss, after = (tf.gather(one, step) for one in (losses, weights))
        tf.identity(loss, training_step.LOSS)
        tf.add_to_collection(training_step.FINITE, tf.is_finite(weight.read_value()))
        with tf.control_dependencies([loss, weight.assign(after)]):
            counted = step.assign_add(1, read_value=True)
        numbers = (counted, 64 * counted, 0, 0)
        report = [tf.cast(one, tf.float64) for one in numbers]
        report[2] = tf.constant(0.25, tf.float64)
        tf.stack(report, name=training_step.REPORT)
        saver = tf.train.CheckpointSaverHook(
            str(folder), save_steps=1, listeners=[FiniteWeightsListener(job)]
        )
        hooks = [FiniteLossHook(job), saver]
        with tf.train.MonitoredSession(tf.train.ChiefSessionCreator(), hooks) as session:
            for _ in losses:
                session.run(counted)


@pytest.mark.parametrize("loss", [math.nan, math.inf, -math.inf])
def test_a_loss_that_is_not_finite_names_step_rate_and_images(tmp_path, loss):
    with pytest.raises(TrainingError) as raised:
        train(tmp_path, losses=[2.0, 1.0, loss], weights=[1.0, 1.0, 1.0])
    assert str(raised.value).startswith(
        f"the loss is {loss} at step 3, with learning rate 0.25, on the images 129 to 192 of this "
        "training; nothing of that was saved, and the next start continues from step 2: "
    )
    assert checkpoints.latest_step(str(tmp_path)) == 2


@pytest.mark.parametrize("weight", [math.nan, math.inf])
def test_weights_that_are_not_finite_are_not_saved(tmp_path, weight):
    with pytest.raises(TrainingError, match="a weight is NaN or infinite at step 3; nothing of "):
        train(tmp_path, losses=[2.0, 1.0, 1.0], weights=[3.0, 4.0, weight])
    kept = checkpoints.latest(str(tmp_path))
    assert tf.train.load_variable(kept, "weight") == 4.0
    assert not list(tmp_path.glob("model.ckpt-3*"))


def test_finite_training_is_left_alone(tmp_path):
    train(tmp_path, losses=[2.0, 1.0], weights=[3.0, 4.0])
    assert checkpoints.latest_step(str(tmp_path)) == 2
