"""Runs the pipeline's own training steps (its model_fn and update) from given weights."""

import contextlib
import dataclasses
import functools
import pathlib
import tempfile
import threading
from collections.abc import Sequence
from typing import Any, Callable, NamedTuple

import numpy as np
import tensorflow.compat.v1 as tf

from cifar10.config.train_config import TrainConfig
from cifar10.step import model_fn
from cifar10.step.devices import DevicePlan
from cifar10.step.params import ModelParams, Replication
from tests.cifar10 import steps
from tests.cifar10.replica_threads import WAIT_SECS, at_the_same_time
from tests.reference.trajectory import Batch

Values = dict[str, Any]
First = Callable[[Values], Values]

_RELUS = ("Relu", "Cifar10NormRelu")  # types of op whose first output is a ReLU's


class Step(NamedTuple):
    """The figures of one training step, and the values of a checkpoint after it."""

    logits: Any  # [N, 10]
    loss: float
    decisions: list[Any]  # decisions of ReLUs and max poolings, in order (`_decision`)
    saved: Values  # values of a checkpoint after the step, by name


def train(
    config: TrainConfig, plan: DevicePlan, trainers: int, first: First, batches: Sequence[Batch]
) -> list[Step]:
    """Trains one step per batch, with synchronous trainers if there are several.

    Args:
      config: settings of each trainer; its batch size is that of one trainer.
      plan: devices of each trainer.
      trainers: number of trainers.
      first: function from the initial values of a checkpoint to those before the first step.
      batches: batches of the whole job, one for each step.
    """
    if trainers > 1:
        return _train_together(config, plan, trainers, first, batches)
    found = []
    with steps.training(config, plan) as run:
        _begin(run, first)
        watched = _Watched(run.images.graph, run.spec.loss, plan)
        for batch in batches:
            (seen,) = run.step(batch, [watched.fetches])
            found.append(watched.step([seen], run.saved()))
    return found


def logits_in_evaluation(config: TrainConfig, plan: DevicePlan, saved: Values, images: Any) -> Any:
    """Returns the logits, [N, 10], that a checkpoint's values give for images in evaluation.

    Args:
      config: the settings.
      plan: the devices.
      saved: the values of a checkpoint, by name.
      images: uint8 [N, 32, 32, 3].
    """
    params = ModelParams(config, plan)
    with tempfile.TemporaryDirectory() as folder, tf.Graph().as_default():
        path = _write(pathlib.Path(folder), saved)
        mode = tf.estimator.ModeKeys.PREDICT
        spec = model_fn.model_fn(tf.constant(images), None, mode, params)
        with tf.Session(config=plan.session_config) as session:
            tf.train.Saver().restore(session, path)
            return session.run(spec.predictions["probabilities"].op.inputs[0])


def _begin(run: steps.Training, first: First) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = _write(pathlib.Path(folder), first(run.saved()))
        run.spec.scaffold.saver.restore(run.session, path)


def _write(folder: pathlib.Path, values: Values) -> str:
    """Writes a checkpoint with these values; returns its path."""
    path, names = str(folder / "given.ckpt"), list(values)
    with tf.Graph().as_default(), tf.Session() as session:
        tensors = [tf.placeholder(values[name].dtype, values[name].shape) for name in names]
        written = tf.raw_ops.SaveV2(
            prefix=path, tensor_names=names, shape_and_slices=[""] * len(names), tensors=tensors
        )
        session.run(written, dict(zip(tensors, values.values())))
    return path


class _Watched:
    """The tensors of a training graph to fetch: the loss, and each tower's logits and decisions.

    Args:
      graph: the training graph.
      loss: the loss of the graph.
      plan: the devices.

    Raises:
      ValueError: the graph lacks a convolution, a loss or a ReLU that it should have.

    Attributes:
      fetches: the tensors, in the form that `step` expects.
    """

    def __init__(self, graph: Any, loss: Any, plan: DevicePlan) -> None:
        ops, num_towers = graph.get_operations(), plan.num_towers
        if plan.kernels != "tensorflow" and not any(op.type == "Cifar10Conv3x3" for op in ops):
            raise ValueError("found no convolution of cifar10.kernels")
        self._losses = [op for op in ops if op.type == "SparseSoftmaxCrossEntropyWithLogits"]
        deciding = [
            [
                op
                for op in ops
                if op.type in (*_RELUS, "MaxPool") and op.name.startswith(f"tower_{tower}/")
            ]
            for tower in range(num_towers)
        ]
        if len(self._losses) != num_towers or not all(deciding):
            raise ValueError(f"found {len(self._losses)} losses of {num_towers} towers")
        self._pools = [_window(op) for op in deciding[0]]
        self.fetches = {
            "loss": loss,
            "logits": [op.inputs[0] for op in self._losses],
            # The decision of a max pooling is computed from its input.
            "deciding": [
                [op.outputs[0] if op.type in _RELUS else op.inputs[0] for op in found]
                for found in deciding
            ],
        }

    def step(self, seen: Sequence[Any], saved: Values) -> Step:
        """Returns a step's figures, joined over towers and trainers in the order of the batch.

        Args:
          seen: for each trainer, the values of `fetches`.
          saved: the values of a checkpoint after the step.
        """
        logits = [array for trainer in seen for array in trainer["logits"]]
        towers = [array for trainer in seen for array in trainer["deciding"]]
        decisions = [
            _decision(np.concatenate(parts).astype(np.float32), size)
            for size, parts in zip(self._pools, zip(*towers))
        ]
        loss = float(np.mean([trainer["loss"] for trainer in seen]))
        return Step(np.concatenate(logits), loss, decisions, saved)


def _window(op: Any) -> int:
    """Returns the side of a max pooling's window; 0 for a ReLU."""
    return int(op.get_attr("ksize")[1]) if op.type == "MaxPool" else 0


def _decision(x: Any, size: int) -> Any:
    """Returns the decisions of a ReLU or a max pooling, as `networks.Pass.decisions` has them.

    Args:
      x: output of the ReLU, or input of the max pooling, [N, H, W, C].
      size: side of the pooling's window; 0 for a ReLU.
    """
    if not size:
        return (x > 0).astype(np.float64)
    count, rows, _, channels = x.shape
    rows //= size
    x = x[:, : rows * size, : rows * size].reshape(count, rows, size, rows, size, channels)
    windows = x.transpose(0, 1, 3, 5, 2, 4).reshape(count, rows, rows, channels, size * size)
    return windows.argmax(-1)


def _train_together(
    config: TrainConfig, plan: DevicePlan, trainers: int, first: First, batches: Sequence[Batch]
) -> list[Step]:
    """Trains with synchronous trainers: the chief in this thread, each other one in its own.

    Their variables are on one server in this process.
    """
    target = str(tf.train.Server.create_local_server().target)
    jobs = [_Trainer(config, plan, index, trainers) for index in range(trainers)]
    size, has_begun = config.train_batch_size, threading.Event()
    parts = [
        [tuple(value[index * size : (index + 1) * size] for value in batch) for batch in batches]
        for index in range(trainers)
    ]
    with contextlib.ExitStack() as stack:
        for job, part in zip(jobs[1:], parts[1:]):
            work = functools.partial(job.follow, target, has_begun, part)
            stack.enter_context(at_the_same_time(work))
        jobs[0].lead(target, first, has_begun, parts[0])
    watched = jobs[0].watched
    return [
        watched.step([job.seen[index] for job in jobs], jobs[0].saved[index])
        for index in range(len(batches))
    ]


class _Trainer:
    """The training graph of one synchronous trainer, and what it records.

    Attributes:
      watched: the tensors to fetch.
      seen: for each step, the values of `watched.fetches`.
      saved: for each step, the values of a checkpoint after it; only the chief records them.
    """

    def __init__(self, config: TrainConfig, plan: DevicePlan, index: int, trainers: int) -> None:
        replication = dataclasses.replace(
            Replication.of(config, None, plan),
            num_replicas=trainers,
            replica=index,
            replicas_to_aggregate=trainers,
        )
        self._graph = tf.Graph()
        with self._graph.as_default():
            self._spec, self._images, self._labels = steps.build(config, plan, replication)
        self.watched = _Watched(self._graph, self._spec.loss, plan)
        self.seen: list[Any] = []
        self.saved: list[Values] = []

    def lead(
        self, target: str, first: First, has_begun: threading.Event, batches: Sequence[Any]
    ) -> None:
        """Trains one step per batch as the chief, which sets the first values."""
        creator = tf.train.ChiefSessionCreator(self._spec.scaffold, target)
        with self._graph.as_default(), tf.train.MonitoredSession(creator) as session:
            # A Saver does not accept a monitored session, so get the session inside it.
            raw = session.run_step_fn(lambda step_context: step_context.session)
            run = steps.Training(self._spec, self._images, self._labels, raw)
            _begin(run, first)
            has_begun.set()
            for batch in batches:
                self._step(session, batch)
                self.saved.append(run.saved())

    def follow(self, target: str, has_begun: threading.Event, batches: Sequence[Any]) -> None:
        """Trains one step per batch as a worker, once the chief has set the first values."""
        if not has_begun.wait(WAIT_SECS):
            raise TimeoutError(f"the chief has not begun after {WAIT_SECS:g} seconds")
        creator = tf.train.WorkerSessionCreator(self._spec.scaffold, target)
        with self._graph.as_default(), tf.train.MonitoredSession(creator) as session:
            for batch in batches:
                self._step(session, batch)

    def _step(self, session: Any, batch: Any) -> None:
        fetches = [self._spec.train_op, self.watched.fetches]
        feed = dict(zip((self._images, self._labels), batch))
        self.seen.append(session.run(fetches, feed)[1])
