"""Steps between checkpoints, what a trainer validates, and output folders that cannot be used."""

import dataclasses
import math
from typing import Any

import pytest

from cifar10.cluster.spec import Cluster
from cifar10.cluster.tf_config import estimator_config
from cifar10.config.train_config import TrainConfig, TrainingPosition
from cifar10.input.records import open_records
from cifar10.run.job import Job, describe_training, make_job
from cifar10.step import devices
from cifar10.step.params import ModelParams
from cifar10.train import run_config
from tests.cifar10.replica_threads import place
from tests.cifar10.steps import make_plan

pytestmark = pytest.mark.usefixtures("pools_stay")


@pytest.mark.parametrize(
    ("settings", "replication", "total_steps", "steps"),
    [
        ({"train_epochs": 10.0}, None, 4_500, 450),
        ({"train_steps": 1}, None, 1, 1),
        # 2.2 epochs: two checkpoints, the second of them at the end.
        ({"train_steps": 990}, None, 990, 495),
        # 177.8 epochs: 178 checkpoints.
        ({}, None, 80_000, 450),
        ({"checkpoint_steps": 7}, None, 80_000, 7),
        # 600 epochs: 500 checkpoints.
        ({"train_epochs": 600.0}, None, 270_000, 540),
        # Three replicas: a synchronous step stands for 300 images, an asynchronous one for 100.
        ({"train_epochs": 10.0}, place(0, 3, 3), 1_500, 150),
        ({"train_epochs": 10.0}, place(0, None, 3), 4_500, 450),
    ],
)
def test_a_checkpoint_is_saved_about_every_epoch_and_at_the_end(
    settings, replication, total_steps, steps
):
    config = TrainConfig(train_batch_size=100, **settings)
    params = ModelParams(config, make_plan(1), 45_000, total_steps, replication=replication)
    assert config.total_steps(45_000, params.examples_per_step) == total_steps
    assert config.steps_between_checkpoints(total_steps, params.total_epochs) == steps


def make(tutorial_data: Any, **settings: Any) -> Job:
    """A job on 100 training and 7 validation images."""
    places = {"data_dir": str(tutorial_data), "num_towers": 1, "num_gpus": 0}
    config = TrainConfig(**{"model": "mlp", **places, **settings})
    return make_job(config, open_records(str(tutorial_data)))


@pytest.mark.parametrize(
    ("done", "total_steps"),
    [
        (TrainingPosition(15, 150), 30),  # steps of the same number of images
        (TrainingPosition(5, 150), 20),  # those of three trainers
        (TrainingPosition(30, 150), 45),  # those of half a batch
        (TrainingPosition(12, 301), 12),
    ],
)
def test_epochs_are_counted_in_images_when_steps_before_had_others(
    tutorial_data, done, total_steps
):
    config = TrainConfig(data_dir=str(tutorial_data), train_batch_size=10, train_epochs=3.0)
    job = make_job(config, open_records(str(tutorial_data)), done)
    assert job.params.total_steps == total_steps
    left = max(0, math.ceil((300 - done.examples_seen) / 10))
    assert job.params.total_examples == done.examples_seen + 10 * left
    # The schedule ends when training does, with steps instead of epochs, too.
    config = dataclasses.replace(config, train_epochs=None, train_steps=40)
    params = make_job(config, open_records(str(tutorial_data)), done).params
    assert params.total_examples == done.examples_seen + 10 * (40 - done.step)


@pytest.mark.parametrize(
    ("step", "is_over", "begins"),
    [
        (0, False, "training to step 40"),
        (15, False, "continuing at step 15 to step 40"),
        (15, True, "already trained to step 15"),  # By a stopping criterion.
    ],
)
def test_what_is_left_to_train_is_said(tutorial_data, capsys, step, is_over, begins):
    config = TrainConfig(data_dir=str(tutorial_data), train_steps=40)
    position = TrainingPosition(step, 128 * step)
    describe_training(make_job(config, open_records(str(tutorial_data)), position), None, is_over)
    assert capsys.readouterr().out.splitlines()[-1] == f"{begins}; output: output"


@pytest.mark.parametrize(("model", "count"), [("resnet", 1), ("mlp", 0)])
def test_who_goes_without_our_convolutions_and_has_any_says_so(
    tutorial_data, monkeypatch, capsys, model, count
):
    monkeypatch.setattr(devices.kernels, "why_not", lambda flags: "they are not compiled (make)")
    describe_training(make(tutorial_data, model=model))
    line = "convolutions are TensorFlow's: ours are not available, they are not compiled (make)"
    assert capsys.readouterr().out.splitlines().count(line) == count


JOBS = {
    "master": ("127.0.0.1:1",),
    "worker": ("127.0.0.1:2", "127.0.0.1:3"),
    "ps": ("127.0.0.1:4",),
}


@pytest.mark.parametrize(
    ("task", "index", "expected"),
    [
        ("master", 0, (True, "worker", 0, {})),
        ("worker", 1, (False, "worker", 1, {job: list(tasks) for job, tasks in JOBS.items()})),
    ],
)
def test_the_chiefs_estimator_knows_no_cluster_and_a_workers_knows_its_task(
    tutorial_data, monkeypatch, task, index, expected
):
    cluster = Cluster(JOBS, task, index, has_evaluator=False, source="TF_CONFIG")
    job = dataclasses.replace(make(tutorial_data, output_dir="/nowhere"), cluster=cluster)
    monkeypatch.setenv("TF_CONFIG", str(estimator_config(cluster, in_graph=False)))
    found = run_config(job)
    known = (found.is_chief, found.task_type, found.task_id, found.cluster_spec.as_dict())
    assert known == expected
    assert (found.master, found.evaluation_master) == (f"grpc://{cluster.own.address}", "")
    assert found.model_dir == "/nowhere"
    assert list(found.session_config.device_filters) == ["/job:ps", f"/job:{task}/task:{index}"]


def test_tasks_that_only_serve_and_a_process_alone_have_no_estimator_in_a_cluster():
    for task, in_graph in (("ps", False), ("worker", True), ("evaluator", False)):
        cluster = Cluster(JOBS, task, 0, has_evaluator=True, source="TF_CONFIG")
        assert estimator_config(cluster, in_graph) is None
    assert estimator_config(None, in_graph=False) is None
