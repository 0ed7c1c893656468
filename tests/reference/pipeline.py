"""Runs the pipeline's own training steps (its model_fn and update) from given weights."""

import contextlib
import dataclasses
import pathlib
import tempfile
import threading
from collections.abc import Iterator, Sequence
from typing import Any, Callable, NamedTuple

import numpy as np
import tensorflow.compat.v1 as tf

from cifar10.config.train_config import TrainConfig
from cifar10.step import model_fn
from cifar10.step.devices import DevicePlan
from cifar10.step.params import ModelParams
from cifar10.step.replication import Replication
from tests.cifar10 import steps
from tests.reference.trajectory import Batch

Values = dict[str, Any]
First = Callable[[Values], Values]

_WAIT_SECS = 60.0


class Step(NamedTuple):
    """The figures of one training step, and the checkpoint values after it."""

    logits: Any  # [N, 10]
    loss: float
    decisions: list[Any]  # of its ReLUs and poolings, in order
    saved: Values  # what a checkpoint holds after it


def train(
    config: TrainConfig, plan: DevicePlan, trainers: int, first: First, batches: Sequence[Batch]
) -> list[Step]:
    """Trains a step a batch, with synchronous trainers if there are several.

    Args:
      config: settings of each trainer; its batch size is that of one trainer.
      plan: devices of each trainer.
      trainers: number of trainers.
      first: function from the initial checkpoint values to those before the first step.
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
    """Logits that a checkpoint's weights and moving statistics give, [N, 10]."""
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
    """Writes a checkpoint; returns its path."""
    path, names = str(folder / "given.ckpt"), list(values)
    with tf.Graph().as_default(), tf.Session() as session:
        tensors = [tf.placeholder(values[name].dtype, values[name].shape) for name in names]
        written = tf.raw_ops.SaveV2(
            prefix=path,
            tensor_names=names,
            shape_and_slices=[""] * len(names),
            tensors=tensors,
        )
        session.run(written, dict(zip(tensors, values.values())))
    return path


class _Watched:
    """What is looked at in a training graph: its loss, and each tower's logits and decisions."""

    def __init__(self, graph: Any, loss: Any, plan: DevicePlan) -> None:
        ops, num_towers = graph.get_operations(), plan.num_towers
        if plan.own_kernels and not any(op.type == "Cifar10Conv3x3" for op in ops):
            raise ValueError("found no convolution of cifar10.ops.kernels")
        self._losses = [op for op in ops if op.type == "SparseSoftmaxCrossEntropyWithLogits"]
        deciding = [
            [
                op
                for op in ops
                if op.type in ("Relu", "MaxPool") and op.name.startswith(f"tower_{tower}/")
            ]
            for tower in range(num_towers)
        ]
        if len(self._losses) != num_towers or not all(deciding):
            raise ValueError(f"found {len(self._losses)} losses of {num_towers} towers")
        self._pools = [_window(op) for op in deciding[0]]
        self.fetches = {
            "loss": loss,
            "logits": [op.inputs[0] for op in self._losses],
            # A pooling's decision is found in what it pools.
            "deciding": [
                [op.outputs[0] if op.type == "Relu" else op.inputs[0] for op in found]
                for found in deciding
            ],
        }

    def step(self, seen: Sequence[Any], saved: Values) -> Step:
        """Joins what the towers of each trainer have seen, in the order of the batch."""
        logits = [one for trainer in seen for one in trainer["logits"]]
        towers = [one for trainer in seen for one in trainer["deciding"]]
        decisions = [
            _decision(np.concatenate(parts).astype(np.float32), size)
            for size, parts in zip(self._pools, zip(*towers))
        ]
        loss = float(np.mean([trainer["loss"] for trainer in seen]))
        return Step(np.concatenate(logits), loss, decisions, saved)


def _window(op: Any) -> int:
    """The side of what a pooling looks at; 0 for a ReLU."""
    return int(op.get_attr("ksize")[1]) if op.type == "MaxPool" else 0


def _decision(x: Any, size: int) -> Any:
    """Which numbers a ReLU let pass; which of a window's numbers a pooling took."""
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
    """Trains synchronous trainers, each in a thread, whose variables are on one server."""
    target = str(tf.train.Server.create_local_server().target)
    jobs = [_Trainer(config, plan, index, trainers) for index in range(trainers)]
    size, has_begun = config.train_batch_size, threading.Event()
    parts = [
        [tuple(value[index * size : (index + 1) * size] for value in batch) for batch in batches]
        for index in range(trainers)
    ]
    with contextlib.ExitStack() as stack:
        for job, part in zip(jobs[1:], parts[1:]):
            stack.enter_context(_in_a_thread(job.follow, target, has_begun, part))
        jobs[0].lead(target, first, has_begun, parts[0])
    watched = jobs[0].watched
    return [
        watched.step([job.seen[index] for job in jobs], jobs[0].saved[index])
        for index in range(len(batches))
    ]


class _Trainer:
    """One trainer's whole training graph, and what it has seen."""

    def __init__(self, config: TrainConfig, plan: DevicePlan, index: int, trainers: int) -> None:
        replication = dataclasses.replace(
            Replication.alone(plan),
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
        """Trains a step a batch as the chief, who sets the weights and keeps what is made."""
        creator = tf.train.ChiefSessionCreator(self._spec.scaffold, target)
        hooks = list(self._spec.training_chief_hooks)
        with self._graph.as_default(), tf.train.MonitoredSession(creator, hooks) as session:
            # A Saver takes no monitored session.
            raw = session.run_step_fn(lambda step_context: step_context.session)
            run = steps.Training(self._spec, self._images, self._labels, raw)
            _begin(run, first)
            has_begun.set()
            for batch in batches:
                self._step(session, batch)
                self.saved.append(run.saved())

    def follow(self, target: str, has_begun: threading.Event, batches: Sequence[Any]) -> None:
        """Trains a step a batch as a worker."""
        if not has_begun.wait(_WAIT_SECS):
            raise TimeoutError(f"the chief has not begun after {_WAIT_SECS:g} seconds")
        creator = tf.train.WorkerSessionCreator(self._spec.scaffold, target)
        with self._graph.as_default(), tf.train.MonitoredSession(creator) as session:
            for batch in batches:
                self._step(session, batch)

    def _step(self, session: Any, batch: Any) -> None:
        fetches = [self._spec.train_op, self.watched.fetches]
        feed = dict(zip((self._images, self._labels), batch))
        self.seen.append(session.run(fetches, feed)[1])


@contextlib.contextmanager
def _in_a_thread(work: Callable[..., None], *arguments: Any) -> Iterator[None]:
    errors: list[BaseException] = []

    def run() -> None:
        try:
            work(*arguments)
        except BaseException as error:  # Raised below, in the test's own thread.
            errors.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    yield
    thread.join(_WAIT_SECS)
    if errors:
        raise errors[0]
    if thread.is_alive():
        raise TimeoutError(f"a trainer still waits after {_WAIT_SECS:g} seconds")
