"""Whole steps of training by two replicas in threads, as Estimator runs them."""

import time
from typing import Any, Callable, Optional

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from cifar10.config.train_config import TrainConfig
from cifar10.step import model_fn, training_step
from cifar10.step.params import ModelParams
from cifar10.step.replication import Replication
from cifar10.tf_internals import session_wait
from tests.cifar10 import steps
from tests.cifar10.replica_threads import WAIT_SECS, at_the_same_time, place
from tests.cifar10.steps import make_batches, make_plan

HALF = 6  # images a replica


class Trainer:
    """One replica's whole training graph; runs in a thread of its own."""

    def __init__(self, target: str, replication: Replication, config: TrainConfig) -> None:
        self._target, self._replication = target, replication
        self.graph = tf.Graph()
        with self.graph.as_default():
            # Another seed for each: what the chief has initialised is what counts.
            tf.set_random_seed(1 + replication.replica)
            tf.train.create_global_step()
            self._images = tf.placeholder(tf.uint8, [HALF, 32, 32, 3])
            self._labels = tf.placeholder(tf.int64, [HALF])
            params = ModelParams(config, make_plan(1), 1000, 100, replication=replication)
            self.spec = model_fn.model_fn(
                self._images, self._labels, tf.estimator.ModeKeys.TRAIN, params
            )

    def train(self, batches: list[Any], at_end: Callable[[Any], None] = lambda _: None) -> int:
        """Trains on the batches, or until the chief ends; returns the steps."""
        chief = self._replication.is_chief
        with self.graph.as_default():
            creator = (tf.train.ChiefSessionCreator if chief else tf.train.WorkerSessionCreator)(
                self.spec.scaffold, self._target
            )
            following = list(self.spec.training_chief_hooks) if chief else [Follow()]
            done = 0
            with tf.train.MonitoredSession(creator, following) as session:
                for images, labels in batches:
                    if session.should_stop():
                        break
                    feed = {self._images: images, self._labels: labels}
                    session.run(self.spec.train_op, feed)
                    done += 1
                at_end(session)
        return done


class Follow(tf.train.SessionRunHook):
    """Ends a worker's training when the chief has ended it."""

    def begin(self) -> None:
        self._report = training_step.report_tensors()

    def before_run(self, run_context: Any) -> Any:
        return tf.train.SessionRunArgs(self._report)

    def after_run(self, run_context: Any, run_values: Any) -> None:
        if training_step.StepReport.of(run_values.results).over:
            run_context.request_stop()


@pytest.fixture
def _prompt_sessions(monkeypatch):
    """As in a cluster's trainer, a worker looks often whether the chief is ready."""
    monkeypatch.setattr(session_wait.MODULE, "SessionManager", tf.train.SessionManager)
    session_wait.look_often()


def train_together(
    target: str, config: TrainConfig, batches: list[Any], aggregate: Optional[int] = 2
) -> dict[str, np.ndarray]:
    """Trains two replicas on halves of each batch; returns what the chief would save."""
    trainers = [Trainer(target, place(replica, aggregate), config) for replica in (0, 1)]
    halves = [
        [(images[part], labels[part]) for images, labels in batches]
        for part in (slice(HALF), slice(HALF, None))
    ]
    saved: dict[str, np.ndarray] = {}

    def save(session: Any) -> None:
        # A Saver takes no monitored session.
        raw = session.run_step_fn(lambda step_context: step_context.session)
        saved.update(steps.Training(trainers[0].spec, None, None, raw).saved())

    with at_the_same_time(lambda: trainers[1].train(halves[1])):
        trainers[0].train(halves[0], save)
    return saved


@pytest.mark.usefixtures("_prompt_sessions")
def test_synchronous_replicas_train_what_one_process_trains_with_the_joint_batch(target):
    settings = {"model": "mlp", "learning_rate": 0.01, "warmup_epochs": 0.0}
    batches = make_batches(5)
    together = train_together(target, TrainConfig(train_batch_size=HALF, **settings), batches)
    with steps.training(TrainConfig(train_batch_size=12, **settings), make_plan(1)) as run:
        for batch in batches:
            run.step(batch)
        alone = run.saved()
    assert together["global_step"] == 5
    assert together["examples_seen"] == 5 * 12
    assert steps.largest_difference(together, alone) < 1e-5


@pytest.mark.system
@pytest.mark.usefixtures("_prompt_sessions")
def test_asynchronous_replicas_share_weights_and_counters_and_end_together(target) -> None:
    config = TrainConfig(model="mlp", train_batch_size=HALF, learning_rate=0.01)
    chief, worker = (Trainer(target, place(replica, None), config) for replica in (0, 1))
    batches = [(images[:HALF], labels[:HALF]) for images, labels in make_batches(1)]
    counts: dict[str, int] = {}

    def wait_for_the_worker(session: Any) -> None:
        until = time.monotonic() + WAIT_SECS
        while counter(session, "global_step") < 3 + 10 and time.monotonic() < until:
            time.sleep(0.01)

    # The worker sees that training is over although it has batches left.
    with at_the_same_time(lambda: counts.update(worker=worker.train(batches * 1_000_000))):
        counts["chief"] = chief.train(batches * 3, wait_for_the_worker)
    assert counts["chief"] == 3
    assert counts["worker"] >= 10
    with tf.Session(target, chief.graph) as session:
        assert counter(session, "global_step") == counts["chief"] + counts["worker"]
        assert counter(session, "examples_seen") == HALF * (counts["chief"] + counts["worker"])


def counter(session: Any, name: str) -> int:
    """A counter as the server holds it."""
    variables = session.graph.get_collection(tf.GraphKeys.GLOBAL_VARIABLES)
    return int(session.run(next(one for one in variables if one.op.name == name)))


def test_a_worker_pushes_one_gradient_and_leaves_the_update_to_the_chief():
    config = TrainConfig(num_layers=8, train_batch_size=HALF)
    types = [
        [op.type for op in steps.ops_before(Trainer("", place(replica), config).spec.train_op)]
        for replica in (0, 1)
    ]
    assert [found.count("ResourceApplyMomentum") for found in types] == [1, 0]
    pushes = "ResourceAccumulatorApplyGradient"
    # Of the weights and of the statistics; one more counts the batch.
    assert types[1].count(pushes) == 2 + 1
    assert types[0].count(pushes) == 2 + 1 + 1  # and the chief wakes the worker


def test_nothing_changes_before_the_last_gradient_of_a_round_has_arrived():
    config = TrainConfig(num_layers=8, train_batch_size=HALF)
    ops = steps.ops_before(Trainer("", place(0), config).spec.train_op)
    arrived = {op for op in ops if op.type == "ResourceAccumulatorTakeGradient"}
    changes = [op for op in ops if op.type in ("ResourceApplyMomentum", "AssignSubVariableOp")]
    assert len(arrived) == len(changes) == 2  # of the weights and of the statistics
    for change in changes:
        assert arrived <= set(steps.ops_before(change))


@pytest.mark.parametrize("replica", [0, 1])
def test_the_round_is_read_before_the_weights(replica):
    # So that no gradient claims a later round than its weights are of.
    trainer = Trainer("", place(replica), TrainConfig(model="mlp", train_batch_size=HALF))
    ops = steps.ops_before(trainer.spec.train_op)
    (read,) = (op for op in ops if reads(op, "packed/weights_0"))
    (round_read,) = (op for op in steps.ops_before(read) if reads(op, "sync_round"))
    # A push takes the accumulator, the round and the gradient; to wake others names no round.
    pushes = [op for op in ops if op.type == "ResourceAccumulatorApplyGradient"]
    rounds = [op.inputs[1].op for op in pushes if op.inputs[1].op.type == "Identity"]
    assert [one.inputs[0].op for one in rounds] == [round_read]


def test_a_worker_that_waits_looks_whether_training_is_over():
    trainer = Trainer("", place(1), TrainConfig(model="mlp", train_batch_size=HALF))
    (loop,) = {
        op.name.partition("/")[0]: op
        for op in steps.ops_before(trainer.spec.train_op)
        if op.type in ("While", "StatelessWhile", "Exit")
    }.values()
    assert any(reads(op, "training_over") for op in steps.ops_before(loop))


def test_a_round_ends_after_its_images_are_counted():
    trainer = Trainer("", place(0), TrainConfig(model="mlp", train_batch_size=HALF))
    (closes,) = (op for op in steps.ops_before(trainer.spec.train_op) if adds_to(op, "sync_round"))
    assert any(adds_to(op, "examples_seen") for op in steps.ops_before(closes))


def reads(op: Any, variable: str) -> bool:
    return op.type == "ReadVariableOp" and op.inputs[0].op.name == variable


def adds_to(op: Any, variable: str) -> bool:
    return op.type == "AssignAddVariableOp" and op.inputs[0].op.name == variable
