"""A worker: when it begins to train, and what ends it."""

import contextlib
import dataclasses
import importlib
import pathlib
import signal
import types
from typing import Any, Callable

import pytest
import tensorflow.compat.v1 as tf

from cifar10.cluster.spec import Cluster
from cifar10.config.train_config import TrainConfig, TrainingPosition
from cifar10.errors import Stopped
from cifar10.guard import server
from cifar10.guard.guard import ClusterGuard
from cifar10.guard.peers import Peers
from cifar10.host.process import StopRequest
from cifar10.output import run_file
from cifar10.output.metrics import Metrics
from cifar10.run import start
from cifar10.train import train_as_worker
from tests.cifar10 import hooked
from tests.cifar10.saved import validated

pytestmark = pytest.mark.usefixtures("pools_stay")

# A chief and two workers, of 10 images each, on 100 training images.
JOBS = {"master": ("a:1",), "worker": ("b:1", "c:1"), "ps": ("d:1",)}
CLUSTER = Cluster(JOBS, "worker", 1, has_evaluator=False, source="TF_CONFIG")


@pytest.fixture
def config(tutorial_data: pathlib.Path, tmp_path: pathlib.Path) -> TrainConfig:
    return TrainConfig(
        model="mlp",
        train_batch_size=10,
        train_steps=30,
        num_towers=1,
        log_steps=1,
        data_dir=str(tutorial_data),
        output_dir=str(tmp_path),
    )


class Joined(Exception):
    """The worker has come as far as joining the cluster."""


@pytest.fixture
def _joins(monkeypatch: pytest.MonkeyPatch) -> None:
    def join(*_: Any) -> Any:
        raise Joined

    monkeypatch.setattr(importlib.import_module("cifar10.train"), "make_job", join)


# The end of training, as the chief has recorded it.


@pytest.fixture
def saved(monkeypatch: pytest.MonkeyPatch) -> Callable[[int, int], None]:
    """A function that plays the newest checkpoint: its step, and the images seen up to there."""

    def save(step: int, examples_seen: int) -> None:
        position = TrainingPosition(step, examples_seen)
        monkeypatch.setattr(start.checkpoints, "latest_position", lambda _: position)

    return save


@pytest.mark.usefixtures("_joins")
@pytest.mark.parametrize(
    ("settings", "last_step"),
    [
        ({}, 30),
        ({"train_steps": None, "train_epochs": 3.0}, 10),
        ({"train_steps": None, "train_epochs": 3.0, "replicas_to_aggregate": 2}, 15),
    ],
    ids=["steps", "synchronous", "with a backup"],
)
def test_a_worker_that_comes_after_the_last_step_does_not_join(
    config, capsys, saved, settings, last_step
):
    config = dataclasses.replace(config, **settings)
    output_dir, images = config.output_path, 300 // last_step
    for ended_at in (None, last_step - 1):  # it goes on, or ended before its time and will go on
        saved(last_step - 1, (last_step - 1) * images)
        run_file.write_training(output_dir, validates=True, ended_at=ended_at)
        with pytest.raises(Joined):
            train_as_worker(config, CLUSTER, StopRequest())
    saved(last_step, last_step * images)
    run_file.write_training(output_dir, validates=True, ended_at=last_step)
    train_as_worker(config, CLUSTER, StopRequest())
    ended = f"worker/1 ends: training is over at step {last_step}; it trained 0 steps"
    assert capsys.readouterr().out.startswith(ended)


@pytest.mark.usefixtures("_joins")
def test_the_end_of_an_older_run_whose_checkpoints_were_removed_is_no_end(config):
    run_file.write_training(config.output_path, validates=True, ended_at=30)
    with pytest.raises(Joined):
        train_as_worker(config, CLUSTER, StopRequest())


@pytest.mark.usefixtures("_joins")
@pytest.mark.parametrize("by", ["the chief", "an evaluator"])
def test_a_worker_that_comes_after_a_stopping_criterion_has_ended_training_does_not_join(
    config, capsys, saved, by
):
    saved(20, 600)
    row = {"step": 20, "epoch": 2.0, "loss": 1.0, "accuracy": 0.5, "seconds": 1.0}
    if by == "the chief":
        Metrics(config.output_path).add("validation", **row)
    else:
        validated(config.output_path, [row])
    run_file.write_training(config.output_path, True, 20, "stopped by --stop-at-accuracy")
    # The chief goes on, too, if the job is started again with a higher criterion.
    with pytest.raises(Joined):
        train_as_worker(dataclasses.replace(config, stop_at_accuracy=0.6), CLUSTER, StopRequest())
    train_as_worker(dataclasses.replace(config, stop_at_accuracy=0.5), CLUSTER, StopRequest())
    assert "worker/1 ends: training is over at step 20" in capsys.readouterr().out


def test_training_that_ends_while_a_worker_waits_for_the_others_ends_the_waiting(
    config, monkeypatch, capsys, saved
):
    def wait(_: ClusterGuard, check: Callable[[], None]) -> None:
        check()
        saved(30, 900)
        run_file.write_training(config.output_path, validates=True, ended_at=30)
        check()
        raise Joined

    monkeypatch.setattr(server, "start", lambda *_: None)
    monkeypatch.setattr(ClusterGuard, "wait_for_tasks", wait)
    train_as_worker(config, CLUSTER, StopRequest())
    assert "worker/1 ends: training is over at step 30" in capsys.readouterr().out


# Training, with the real hooks in a session of a small graph.


class AfterStep(tf.train.SessionRunHook):
    """Calls a function with the number of each step, after the worker's own hook."""

    def __init__(self, function: Callable[[int], None]) -> None:
        self._function, self._taken = function, 0

    def after_run(self, run_context: Any, run_values: Any) -> None:
        self._taken += 1
        self._function(self._taken)


@pytest.fixture
def trained(config: TrainConfig, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Trains as worker 1 of a cluster whose other tasks need no server."""

    def run(
        stop: StopRequest,
        over_at: int = 1000,
        after_step: Callable[[int], None] = lambda number: None,
        is_master_here: Callable[[], bool] = lambda: True,
        **settings: Any,
    ) -> None:
        changed = dataclasses.replace(config, **settings)
        monkeypatch.setattr(server, "start", lambda *_: None)
        monkeypatch.setattr(ClusterGuard, "wait_for_tasks", lambda self, check: check())
        monkeypatch.setattr("cifar10.guard.guard.watching", lambda _: contextlib.nullcontext())
        monkeypatch.setattr(Peers, "is_here", lambda *_: is_master_here())
        estimator = types.SimpleNamespace(
            train=lambda input_fn, hooks: hooked.train(
                *hooks, AfterStep(after_step), over_at=over_at
            )
        )
        monkeypatch.setattr(tf.estimator, "Estimator", lambda *_, **named: estimator)
        train_as_worker(changed, CLUSTER, stop)

    return run


def test_a_worker_says_how_many_steps_it_trained(trained, capsys):
    trained(StopRequest(), over_at=6)
    assert "training is over; it trained 6 steps" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("sync", "last"), [(False, 4), (True, 10)], ids=["at once", "when the chief has gone"]
)
def test_a_signal_ends_a_worker(trained, sync, last):
    stop, taken = StopRequest(), [0]

    def after_step(number: int) -> None:
        taken.append(number)
        if number == 3:
            stop._note(signal.SIGTERM)

    with pytest.raises(Stopped):
        trained(stop, after_step=after_step, is_master_here=lambda: taken[-1] < 9, sync=sync)
    assert taken[-1] == last
