"""Checkpoints and rows as training saves them."""

from typing import Any

import tensorflow.compat.v1 as tf

from cifar10.config.train_config import TrainConfig
from cifar10.output.metrics import EVALUATOR_FILE_NAME, Metrics
from cifar10.schema import VALIDATION
from cifar10.step.devices import plan_devices
from tests.cifar10 import steps


def save(folder: object, step: int, value: float = 0.0) -> str:
    """Saves a checkpoint as Estimator does; returns its path."""
    tf.io.gfile.makedirs(str(folder))
    with tf.Graph().as_default(), tf.Session() as session:
        step_variable = tf.train.create_global_step()
        with tf.variable_scope("model"):
            kernel = tf.get_variable("kernel", [2, 3], initializer=tf.constant_initializer(value))
            tf.get_variable("moving_mean", [7], trainable=False)
            tf.get_variable("bias", [5])
        with tf.variable_scope("input"):
            tf.get_variable("channel_mean", [3], trainable=False)
        tf.train.MomentumOptimizer(0.1, 0.9).minimize(tf.reduce_sum(kernel))
        saver = tf.train.Saver(sharded=True, save_relative_paths=True)
        session.run(tf.global_variables_initializer())
        session.run(step_variable.assign(step))
        return str(
            saver.save(session, f"{folder}/model.ckpt", global_step=step, write_meta_graph=False)
        )


def value(checkpoint: str) -> float:
    """What `save` put into a checkpoint; fails if it is not whole."""
    return float(tf.train.NewCheckpointReader(checkpoint).get_tensor("model/kernel")[0, 0])


def validated(folder: object, rows: "list[dict[str, Any]]") -> None:
    """Leaves the validations of a separate evaluator in an output folder."""
    metrics = Metrics(str(folder), EVALUATOR_FILE_NAME)
    for row in rows:
        metrics.add(VALIDATION, **row)


def save_untrained(config: TrainConfig) -> str:
    """Saves a model with its initial weights, as training would."""
    with steps.training(config, plan_devices(config)) as run:
        return str(run.spec.scaffold.saver.save(run.session, f"{config.output_dir}/model.ckpt", 0))
