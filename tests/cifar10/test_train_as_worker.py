"""A worker: when it begins to train, what ends it, and whether it tells the other tasks."""

import dataclasses
import itertools
import pathlib
import signal
from typing import Any, Callable

import pytest
import tensorflow.compat.v1 as tf

from cifar10 import train
from cifar10.cluster.spec import Cluster
from cifar10.config.train_config import NOTHING_DONE, Done, TrainConfig
from cifar10.errors import DataError, Stopped, TrainingError
from cifar10.host import activity
from cifar10.host.signals import Stay, StopRequest
from cifar10.input.records import open_records
from cifar10.output import run_status
from cifar10.output.history import FILE_NAME, VALIDATION_FILE_NAME, History
from cifar10.run import resume
from cifar10.run.hooks.step_probe import StepProbe
from cifar10.run.job import Job, make_job
from cifar10.run.stall_watch import watch_for_stalls
from cifar10.step import training_step
from cifar10.train import train_as_worker
from tests.cifar10 import record_files

# Three trainers of 10 images each, on 100 training images.
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
    def join(*_: Any) -> Job:
        raise Joined

    monkeypatch.setattr(train, "join_job", join)


# The end of training, as the master has noted it.


@pytest.fixture
def saved(monkeypatch: pytest.MonkeyPatch) -> Callable[[int, int], None]:
    """A function that plays the newest checkpoint: its step, and the images seen up to there."""

    def save(step: int, examples_seen: int) -> None:
        monkeypatch.setattr(resume.checkpoints, "latest_done", lambda _: Done(step, examples_seen))

    return save


@pytest.mark.usefixtures("_joins")
@pytest.mark.parametrize(
    ("settings", "last_step"),
    [
        ({}, 30),
        ({"train_steps": None, "train_epochs": 3.0, "sync": False}, 30),
        ({"train_steps": None, "train_epochs": 3.0}, 10),
        ({"train_steps": None, "train_epochs": 3.0, "replicas_to_aggregate": 2}, 15),
    ],
    ids=["steps", "asynchronous", "synchronous", "with a backup"],
)
def test_a_worker_that_comes_after_the_last_step_does_not_join(
    config, capsys, saved, settings, last_step
):
    config = dataclasses.replace(config, **settings)
    place, images = config.output_place, 300 // last_step
    for ended_at in (None, last_step - 1):  # it goes on, or ended before its time and will go on
        saved(last_step - 1, (last_step - 1) * images)
        run_status.write(place, validates=True, ended_at=ended_at)
        with pytest.raises(Joined):
            train_as_worker(config, CLUSTER, StopRequest())
    saved(last_step, last_step * images)
    run_status.write(place, validates=True, ended_at=last_step)
    train_as_worker(config, CLUSTER, StopRequest())
    ended = f"worker/1 ends: training is over at step {last_step}; it trained 0 steps"
    assert capsys.readouterr().out.startswith(ended)


@pytest.mark.usefixtures("_joins")
def test_epochs_of_another_number_of_trainers_count_as_the_images_that_they_were(
    config, capsys, saved
):
    # Three epochs are 300 images: 28 steps of one trainer, and one of three.
    config = dataclasses.replace(config, train_steps=None, train_epochs=3.0)
    saved(28, 280)
    run_status.write(config.output_place, validates=True, ended_at=28)
    with pytest.raises(Joined):
        train_as_worker(config, CLUSTER, StopRequest())
    saved(29, 310)
    run_status.write(config.output_place, validates=True, ended_at=29)
    train_as_worker(config, CLUSTER, StopRequest())
    assert "worker/1 ends: training is over at step 29" in capsys.readouterr().out


@pytest.mark.usefixtures("_joins")
def test_the_end_of_an_older_run_whose_checkpoints_were_removed_is_no_end(config):
    run_status.write(config.output_place, validates=True, ended_at=30)
    with pytest.raises(Joined):
        train_as_worker(config, CLUSTER, StopRequest())


@pytest.mark.usefixtures("_joins")
@pytest.mark.parametrize("name", [FILE_NAME, VALIDATION_FILE_NAME])
def test_a_worker_that_comes_after_a_goal_has_ended_training_does_not_join(
    config, capsys, saved, name
):
    saved(20, 600)
    row = {"step": 20, "epoch": 2.0, "loss": 1.0, "accuracy": 0.5, "seconds": 1.0}
    History(str(pathlib.Path(config.output_place, name)), validation=[row]).save()
    run_status.write(config.output_place, True, 20, "stopped by --stop-at-accuracy")
    # The master goes on, too, if the job is started again with a higher goal.
    with pytest.raises(Joined):
        train_as_worker(dataclasses.replace(config, stop_at_accuracy=0.6), CLUSTER, StopRequest())
    train_as_worker(dataclasses.replace(config, stop_at_accuracy=0.5), CLUSTER, StopRequest())
    assert "worker/1 ends: training is over at step 20" in capsys.readouterr().out


def test_training_that_ends_while_a_worker_waits_for_the_others_ends_the_waiting(
    config, monkeypatch, capsys, saved
):
    def wait(
        config: TrainConfig, records: Any, cluster: Cluster, check: Callable[[], None], done: Done
    ) -> Job:
        check()
        saved(30, 900)
        run_status.write(config.output_place, validates=True, ended_at=30)
        check()
        raise Joined

    monkeypatch.setattr(train, "join_job", wait)
    train_as_worker(config, CLUSTER, StopRequest())
    assert "worker/1 ends: training is over at step 30" in capsys.readouterr().out


@pytest.mark.usefixtures("_joins")
def test_a_worker_without_training_images_is_refused_before_it_joins(config, tmp_path):
    data = tmp_path / "data"
    record_files.write_numbered(data, "eval", 5)
    with pytest.raises(DataError, match="has no train records"):
        train_as_worker(dataclasses.replace(config, data_dir=str(data)), CLUSTER, StopRequest())


# Training, with the real hooks in a session of a small graph.


class Place:
    """Stands in for the worker's place in a cluster, which takes servers."""

    def __init__(self) -> None:
        self.master_is_here = self.hears_all = True
        self.ends_told = 0
        self.cluster = CLUSTER

    def describe(self, replication: Any) -> str:
        return "worker/1"

    def stay_for_the_master(self, stop: StopRequest) -> Stay:
        return Stay(stop, lambda: self.master_is_here)

    def tell_end(self) -> None:
        self.ends_told += 1

    def close(self) -> None:
        """No thread asks other tasks."""


class Trainer:
    """Counts steps under the hooks, as an Estimator would; `after_step` is told of each."""

    def __init__(self, first: int, over_at: int, after_step: Callable[[int], None]) -> None:
        self._first, self._over_at, self._after_step = first, over_at, after_step

    def train(self, input_fn: Any, hooks: list[Any]) -> None:
        with tf.Graph().as_default():
            step = tf.train.create_global_step()
            begun = step.assign(self._first).op
            scaffold = tf.train.Scaffold(init_fn=lambda _, session: session.run(begun))
            counted = step.assign_add(1, read_value=True)
            training_step.own_figure("loss", tf.cast(counted, tf.float32))
            training_step.own_figure("accuracy", tf.constant(0.5))
            figures = (counted, 10 * counted, 0.1, tf.greater_equal(counted, self._over_at))
            tf.stack([tf.cast(one, tf.float64) for one in figures], name=training_step.REPORT)
            tf.constant(False, name=training_step.OVER)
            tf.constant(0, name=training_step.TAKEN)
            creator = tf.train.ChiefSessionCreator(scaffold)
            with tf.train.MonitoredSession(creator, hooks) as session:
                for number in itertools.count(1):
                    if session.should_stop():
                        return
                    session.run(counted)
                    self._after_step(number)


@pytest.fixture
def trained(config: TrainConfig, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Trains as worker 1; returns its place in the cluster."""

    def run(
        stop: StopRequest,
        place: Any,
        over_at: int = 1000,
        after_step: Callable[[int], None] = lambda number: None,
        done: Done = NOTHING_DONE,
        **settings: Any,
    ) -> None:
        changed = dataclasses.replace(config, **settings)
        job = make_job(changed, open_records(changed.data_place), done)
        job = dataclasses.replace(job, cluster_session=place)
        monkeypatch.setattr(train, "join_job", lambda *_: job)
        monkeypatch.setattr(
            train, "make_trainer", lambda job: Trainer(done.step, over_at, after_step)
        )
        train_as_worker(changed, CLUSTER, stop)

    return run


@pytest.mark.parametrize(
    ("task", "index", "phase"), [("master", 0, activity.START), ("worker", 1, None)]
)
def test_the_time_between_two_sessions_is_no_step(config, task, index, phase):
    place: Any = Place()
    place.cluster = dataclasses.replace(CLUSTER, task_type=task, task_index=index)
    job = make_job(config, open_records(config.data_place))
    job = dataclasses.replace(job, cluster_session=place)
    watch_for_stalls(job, StepProbe(job.activity))
    job.activity.begin(activity.STEP)
    place.session_begins()
    assert job.activity.phase == phase
    assert not job.activity.is_in_step


@pytest.mark.parametrize(("over_at", "steps"), [(1000, 30), (7, 7)], ids=["last step", "master's"])
def test_a_worker_trains_to_the_end_and_tells_the_others(trained, capsys, over_at, steps):
    place = Place()
    trained(StopRequest(), place, over_at=over_at)
    assert place.ends_told == 1
    ended = capsys.readouterr().out.splitlines()[-1]
    assert ended.startswith(f"worker/1 ends: training is over; it trained {steps} steps")


@pytest.mark.parametrize(("sync", "steps"), [(True, 6), (False, 5)])
def test_a_synchronous_worker_that_comes_later_leaves_the_last_step_to_the_master(
    trained, capsys, sync, steps
):
    # 250 of 300 images were seen in the first 20 steps; the master ends after step 26.
    done = Done(20, 250)
    trained(StopRequest(), Place(), 26, done=done, train_steps=None, train_epochs=3.0, sync=sync)
    assert f"training is over; it trained {steps} steps" in capsys.readouterr().out


def test_a_signal_ends_an_asynchronous_worker_at_once_and_nobody_takes_it_for_the_end(trained):
    stop, place, taken = StopRequest(), Place(), []

    def after_step(number: int) -> None:
        taken.append(number)
        if number == 3:
            stop._note(signal.SIGTERM)

    with pytest.raises(Stopped):
        trained(stop, place, after_step=after_step, sync=False)
    assert taken[-1] == 4
    assert place.ends_told == 0


def test_a_synchronous_worker_trains_on_after_a_signal_until_the_master_has_gone(trained):
    stop, place, taken = StopRequest(), Place(), []

    def after_step(number: int) -> None:
        taken.append(number)
        if number == 3:
            stop._note(signal.SIGTERM)
        place.master_is_here = number < 9

    with pytest.raises(Stopped):
        trained(stop, place, after_step=after_step)
    assert taken[-1] == 10
    assert place.ends_told == 0


def test_a_worker_that_fails_tells_nobody_of_an_end(trained):
    def fail(number: int) -> None:
        raise TrainingError("the loss is nan")

    place = Place()
    with pytest.raises(TrainingError, match="the loss is nan"):
        trained(StopRequest(), place, after_step=fail)
    assert place.ends_told == 0
