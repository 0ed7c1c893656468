"""Builds and runs training steps for tests, on logical CPU devices that stand in for GPUs."""

import contextlib
import dataclasses
import pathlib
import tempfile
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, Optional

import numpy as np
import tensorflow.compat.v1 as tf

from cifar10.config.train_config import TrainConfig
from cifar10.step import model_fn
from cifar10.step.devices import DevicePlan
from cifar10.step.params import ModelParams

BATCH = 12

# Three GPUs, as devices of a cluster.
TWO_MACHINES = ("/job:worker/task:0/gpu:0", "/job:worker/task:0/gpu:1", "/job:worker/task:1/gpu:0")

# Channel means and standard deviations with which normalization leaves images unchanged.
AS_THEY_ARE = (0.0, 0.0, 0.0), (1.0, 1.0, 1.0)


def make_plan(num_towers: int, num_shards: Optional[int] = None) -> DevicePlan:
    """Makes a plan with a logical CPU device per tower, and the variables in `num_shards` shards.

    The shards are on the first `num_shards` devices; None: one on each tower's device.
    """
    count = max(num_towers, num_shards or 0)
    return DevicePlan(
        tower_devices=tuple(f"/cpu:{index}" for index in range(num_towers)),
        variable_devices=tuple(f"/cpu:{index}" for index in range(num_shards or num_towers)),
        data_format="channels_last",
        compute_dtype=tf.float32,
        session_config=tf.ConfigProto(device_count={"CPU": count}),
        summary="",
    )


def make_batches(steps: int, size: int = BATCH) -> list[tuple[np.ndarray, np.ndarray]]:
    """Returns random batches (uint8 [size, 32, 32, 3], int64 [size]), the same in every test."""
    random = np.random.default_rng(0)
    return [
        (
            random.integers(0, 256, (size, 32, 32, 3), np.uint8),
            random.integers(0, 10, size, np.int64),
        )
        for _ in range(steps)
    ]


class Training(NamedTuple):
    """A TRAIN graph: its EstimatorSpec, the placeholders of its batch, and its session."""

    spec: Any
    images: Any
    labels: Any
    session: Any

    @property
    def shards(self) -> list[Any]:
        """The variables that hold the weights."""
        return list(tf.trainable_variables())

    @property
    def weights(self) -> np.ndarray:
        """The flat vector of weights, concatenated from the shards."""
        return np.concatenate(self.session.run(self.shards))

    def step(self, batch: tuple[np.ndarray, np.ndarray], fetches: Any = ()) -> Any:
        """Trains one step; returns the values of `fetches`."""
        feed = dict(zip((self.images, self.labels), batch))
        return self.session.run([self.spec.train_op, *fetches], feed)[1:]

    def shake(self) -> None:
        """Moves every weight away from its initial value, so that no gamma is 1 and no bias 0."""
        weights = self.weights
        noise = np.random.default_rng(1).standard_normal(len(weights))
        values = (0.5 * weights + 0.1 * noise).astype(np.float32)
        for shard in self.shards:
            size = shard.shape[0]
            shard.load(values[:size], self.session)
            values = values[size:]

    def save(self, path: pathlib.Path) -> str:
        """Writes a checkpoint as training does, into the folder `path`; returns its path prefix."""
        return str(self.spec.scaffold.saver.save(self.session, str(path / "model.ckpt")))

    def saved(self) -> dict[str, np.ndarray]:
        """Returns every value that a checkpoint would hold, by name."""
        with tempfile.TemporaryDirectory() as folder:
            return read_checkpoint(self.save(pathlib.Path(folder)))


def read_checkpoint(path: str) -> dict[str, np.ndarray]:
    """Returns the values of a checkpoint, or of a folder's latest one, by their names."""
    reader = tf.train.load_checkpoint(path)
    return {name: reader.get_tensor(name) for name in sorted(reader.get_variable_to_shape_map())}


def build(
    config: TrainConfig,
    plan: DevicePlan,
    replication: Any = None,
    values: Optional[Mapping[str, np.ndarray]] = None,
) -> tuple[Any, Any, Any]:
    """Builds a TRAIN graph in the default graph; `training` describes most arguments.

    `replication` is how this process takes part among several; None: it trains alone. There is no
    warm-up unless the settings ask for it, so that a few steps move the weights.

    Returns:
      The EstimatorSpec, and the placeholders of images and labels.
    """
    if config.warmup_epochs is None:
        config = dataclasses.replace(config, warmup_epochs=0.0)
    tf.train.create_global_step()
    with tf.device("/cpu:0"):  # as Estimator does with the input
        images = tf.placeholder(tf.uint8, [config.train_batch_size, 32, 32, 3])
        labels = tf.placeholder(tf.int64, [config.train_batch_size])
    params = ModelParams(
        config, plan, 1000, 100, replication=replication, values_from_data=values or {}
    )
    spec = model_fn.model_fn(images, labels, tf.estimator.ModeKeys.TRAIN, params)
    return spec, images, labels


@contextlib.contextmanager
def training(
    config: TrainConfig,
    plan: DevicePlan,
    seed: int = 1,
    values: Optional[Mapping[str, np.ndarray]] = None,
) -> Iterator[Training]:
    """Builds a TRAIN graph in a new tf.Graph and initialises it.

    Args:
      config: the settings.
      plan: the devices.
      seed: seed of the initial weights.
      values: initial values of variables that are made from the data, by name.
    """
    with tf.Graph().as_default():
        tf.set_random_seed(seed)
        spec, images, labels = build(config, plan, values=values)
        with tf.Session(config=plan.session_config) as session:
            session.run(tf.global_variables_initializer())
            yield Training(spec, images, labels, session)


def ops_before(op: Any) -> list[Any]:
    """Returns every op that `op` depends on, itself included."""
    found, waiting = {op.name: op}, [op]
    while waiting:
        op = waiting.pop()
        for before in [*op.control_inputs, *(tensor.op for tensor in op.inputs)]:
            if before.name not in found:
                found[before.name] = before
                waiting.append(before)
    return list(found.values())
