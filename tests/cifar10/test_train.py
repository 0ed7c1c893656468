"""A process that trains: what it does in which order, and what it leaves to others."""

import dataclasses
import json
import pathlib
import shutil
import signal
import time
from collections.abc import Iterator
from typing import Any, Optional

import pytest
import tensorflow.compat.v1 as tf

from cifar10.config.train_config import TrainConfig
from cifar10.errors import DamagedError, DataError, Stopped
from cifar10.guard import Guard, folder_lock
from cifar10.host.process import StopRequest
from cifar10.input import pipeline
from cifar10.input.records import open_records
from cifar10.output import checkpoints, run_file
from cifar10.output.metrics import Metrics
from cifar10.run import results
from cifar10.run.job import Job, evaluation_input, make_job
from cifar10.run.training_hook import ChiefHook, Saving
from cifar10.run.validation import KeepBest
from cifar10.step.params import Replication
from cifar10.step.state import examples_seen
from cifar10.tf_errors import clear_errors
from cifar10.train import train_and_evaluate, training_input
from tests.cifar10 import record_files, saved
from tests.failing_disk import flip_bit

LAST_HALF = [("validated", 10), ("end told", 10), ("evaluated", "completed")]


@pytest.fixture
def config(tutorial_data: pathlib.Path, tmp_path: pathlib.Path, pools_stay: None) -> TrainConfig:
    """Ten steps of ten images, a checkpoint every five, with 7 images for validation."""
    return TrainConfig(
        model="mlp",
        hidden_units=4,
        num_towers=1,
        train_batch_size=10,
        train_steps=10,
        checkpoint_steps=5,
        learning_rate=1e-5,
        schedule="constant",
        warmup_epochs=0.0,
        use_distortion_for_training=False,
        data_dir=str(tutorial_data),
        output_dir=str(tmp_path / "output"),
    )


@pytest.fixture
def events(config: TrainConfig, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, Any]]:
    """What a run does, in order: validates a step, tells the cluster's end, evaluates.

    The evaluation and the report are other modules', and take longer than all else.
    """
    done: list[tuple[str, Any]] = []
    export = KeepBest.export

    def validated(self: Any, *args: Any, **named: Any) -> None:
        before = len(self._metrics.of("validation"))
        export(self, *args, **named)
        assert folder_lock.is_held(config.output_path, folder_lock.TRAINING)
        rows = self._metrics.of("validation")
        done.extend(("validated", row["step"]) for row in rows[before:])

    def ended(self: Guard) -> None:
        record = run_file.read(config.output_path).training
        done.append(("end told", record and record["ended_at_step"]))

    monkeypatch.setattr(KeepBest, "export", validated)
    monkeypatch.setattr(Guard, "tell_end", ended)
    monkeypatch.setattr(
        results,
        "finish",
        lambda job, guarded, metrics, status, secs: done.append(("evaluated", status)),
    )
    return done


def run(config: TrainConfig, stop: Optional[StopRequest] = None) -> None:
    with clear_errors(config):
        train_and_evaluate(config, stop or StopRequest(), time.monotonic())


def record(config: TrainConfig) -> Any:
    return run_file.read(config.output_path).training


def forget_validations(config: TrainConfig, after: int) -> None:
    """Leaves the output folder as a kill between a checkpoint and its validation does."""
    path = pathlib.Path(config.output_path, "metrics.jsonl")
    rows = map(json.loads, path.read_text().splitlines())
    kept = [row for row in rows if row["split"] != "validation" or row["step"] <= after]
    path.write_text("".join(json.dumps(row) + "\n" for row in kept))


def test_each_checkpoint_is_validated_and_then_the_cluster_is_told_of_the_end(
    config, events, monkeypatch
):
    splits: set[str] = set()
    monkeypatch.setitem(
        train_and_evaluate.__globals__,
        "evaluation_input",
        lambda job, split: splits.add(split) or evaluation_input(job, split),
    )
    run(config)
    assert splits == {"validation"}
    assert events == [("validated", 5), *LAST_HALF]
    # Ten of 100 images a step.
    assert [row["epoch"] for row in Metrics(config.output_path).of("validation")] == [0.5, 1.0]
    assert checkpoints.latest_step(config.output_path) == 10
    assert record(config) == {"master_validates": True, "ended_at_step": 10, "status": "completed"}


def test_a_cluster_is_told_that_a_finished_run_is_over(config, events, monkeypatch):
    run(config)
    events.clear()
    monkeypatch.setattr(results, "describe_finished", lambda *_: "already trained")
    run(config)
    assert events == [("end told", 10)]


@pytest.mark.parametrize(("secs", "status"), [(20, "completed"), (70, "stopped by --max-minutes")])
def test_the_time_limit_is_in_minutes_since_the_start_of_the_process(config, events, secs, status):
    config = dataclasses.replace(config, max_minutes=1.0)
    train_and_evaluate(config, StopRequest(), time.monotonic() - secs)
    assert events[-1] == ("evaluated", status)


def test_a_checkpoint_whose_validation_was_cut_off_is_validated_before_training_goes_on(
    config, events
):
    run(dataclasses.replace(config, train_steps=5))
    forget_validations(config, after=0)
    events.clear()
    run(config)
    assert events == [("validated", 5), *LAST_HALF]
    # So is that of the last step, without a step of training.
    forget_validations(config, after=5)
    events.clear()
    run(config)
    assert events == LAST_HALF


def test_a_run_that_has_met_its_stopping_criterion_only_evaluates_and_reports(
    config, events, capsys
):
    run(dataclasses.replace(config, train_steps=5))
    metrics = Metrics(config.output_path)
    row = {"epoch": 1.0, "loss": 1.0, "accuracy": 0.5, "seconds": 1.0}
    metrics.add("validation", 5, **row)
    events.clear()
    capsys.readouterr()
    run(dataclasses.replace(config, train_steps=1_000_000, stop_at_accuracy=0.5))
    assert events == [("end told", 5), ("evaluated", "stopped by --stop-at-accuracy")]
    out = capsys.readouterr().out
    assert "training ends: validation accuracy 0.5000 at step 5 has reached" in out


def test_a_stopping_criterion_that_a_validation_at_the_start_meets_ends_training(config, events):
    run(dataclasses.replace(config, train_steps=5))
    forget_validations(config, after=0)
    events.clear()
    run(dataclasses.replace(config, stop_at_accuracy=1e-6, train_steps=1_000_000))
    assert events[-1] == ("evaluated", "stopped by --stop-at-accuracy")
    assert checkpoints.latest_step(config.output_path) == 5


def test_a_stopping_criterion_whose_validations_cannot_be_read_now_is_judged_later(
    config, events, monkeypatch, capsys
):
    def stale(*_: Any) -> None:
        raise tf.errors.AbortedError(None, None, "Stale file handle")

    monkeypatch.setattr("cifar10.run.validation.ended_before", stale)
    run(config)
    assert events[-1] == ("evaluated", "completed")
    assert "the validations cannot be read now (Stale file handle)" in capsys.readouterr().out


@pytest.mark.usefixtures("evaluator")
def test_a_damaged_file_of_validations_ends_a_run_that_they_may_end(config, events, monkeypatch):
    path = pathlib.Path(config.output_path, "metrics_evaluator.jsonl")
    after_save = Saving.after_save

    def damage(saving: Saving, session: Any, step: int) -> None:
        path.write_text("no row\n")
        after_save(saving, session, step)

    monkeypatch.setattr(Saving, "after_save", damage)
    with pytest.raises(DamagedError, match=r"metrics_evaluator.jsonl is damaged \(row 1\); move"):
        run(dataclasses.replace(config, stop_at_accuracy=0.9))
    assert checkpoints.latest_step(config.output_path) == 5  # The next start continues from it.


@pytest.fixture
def evaluator(config: TrainConfig) -> Iterator[None]:
    """A separate evaluator, which holds the output folder."""
    output_dir = config.output_path
    tf.io.gfile.makedirs(output_dir)
    with folder_lock.hold(output_dir, output_dir, folder_lock.EVALUATOR, lambda: None):
        yield


@pytest.mark.usefixtures("evaluator")
def test_an_evaluator_that_is_here_validates_but_the_chief_evaluates_and_reports(config, events):
    run(config)
    # Nothing waits for the evaluator, which has not validated the last checkpoint.
    assert events == [("end told", 10), ("validated", 10), ("evaluated", "completed")]
    assert record(config) == {"master_validates": False, "ended_at_step": 10, "status": "completed"}


@pytest.mark.usefixtures("evaluator")
@pytest.mark.parametrize(
    ("target", "statuses"),
    [(None, ["completed"]), (1e-6, ["completed", "stopped by --stop-at-accuracy"])],
)
def test_the_end_is_recorded_again_only_if_the_last_validation_changes_the_status(
    config, events, monkeypatch, target, statuses
):
    ends, write = [], run_file.write_training

    def watched(output_dir: str, *args: Any) -> None:
        ends.extend(args[2:])
        write(output_dir, *args)

    monkeypatch.setattr(run_file, "write_training", watched)
    run(dataclasses.replace(config, stop_at_accuracy=target))
    assert ends == statuses
    assert events[-1] == ("evaluated", statuses[-1])


@pytest.mark.usefixtures("evaluator")
def test_validations_of_an_evaluator_are_not_repeated(config, events, monkeypatch):
    row = {"step": 10, "epoch": 1.0, "loss": 1.0, "accuracy": 0.5, "seconds": 1.0}
    write = run_file.write_training

    def validated_meanwhile(output_dir: str, *args: Any) -> None:
        write(output_dir, *args)
        saved.validated(output_dir, [row])

    monkeypatch.setattr(run_file, "write_training", validated_meanwhile)
    run(config)
    assert events == [("end told", 10), ("evaluated", "completed")]


def test_a_signal_leaves_a_checkpoint_and_no_word_of_an_end(config, events, monkeypatch):
    stop, before_run = StopRequest(), ChiefHook.before_run

    def signal_in_the_second_step(hook: ChiefHook, run_context: Any) -> Any:
        if hook.step == 1:
            stop._note(signal.SIGTERM)
        return before_run(hook, run_context)

    monkeypatch.setattr(ChiefHook, "before_run", signal_in_the_second_step)
    with pytest.raises(Stopped):
        run(config, stop)
    assert checkpoints.latest_step(config.output_path) == 2
    assert events == []
    assert record(config)["ended_at_step"] is None


def test_a_signal_while_a_validation_is_made_up_for_leaves_all_else_to_the_next_run(
    config, events, monkeypatch
):
    config = dataclasses.replace(config, train_steps=1)
    run(config)
    forget_validations(config, after=0)
    events.clear()
    stop, export = StopRequest(), KeepBest.export

    def stopped(self: Any, *args: Any, **named: Any) -> None:
        export(self, *args, **named)
        stop._note(signal.SIGTERM)

    monkeypatch.setattr(KeepBest, "export", stopped)
    with pytest.raises(Stopped):
        run(config, stop)
    assert events[:1] == [("validated", 1)]
    assert "evaluated" not in dict(events)


def test_without_eval_records_nothing_is_begun(config, events, tmp_path):
    record_files.write_numbered(tmp_path / "data", "train", 20)
    with pytest.raises(DataError, match="has no eval records"):
        run(dataclasses.replace(config, data_dir=str(tmp_path / "data")))
    assert not (tmp_path / "output").exists()


@pytest.mark.parametrize("damaged", ["train", "eval"])
def test_a_damaged_record_is_named_before_the_first_step(
    config, events, tmp_path, prepared_data, damaged
):
    # With a manifest, no record is read in order to count it.
    data = pathlib.Path(shutil.copytree(prepared_data, tmp_path / "data"))
    flip_bit(next(data.glob(f"{damaged}*.tfrecords")), -100)
    with pytest.raises(DataError, match="a file is damaged in .* data_prep"), clear_errors(config):
        run(dataclasses.replace(config, data_dir=str(data)))
    assert events == []
    assert not checkpoints.latest_step(config.output_path)


# The training input.


def first_batch(job: Job, seen: int) -> Any:
    """What training is fed first, after a checkpoint that has seen so many images."""
    with tf.Graph().as_default(), tf.Session() as session:
        batches = tf.data.make_initializable_iterator(training_input(job))
        batch = batches.get_next()
        session.run(tf.global_variables_initializer())
        examples_seen("/cpu:0").load(seen, session)
        session.run(batches.initializer)
        return session.run(batch)


def joint_batch(config: TrainConfig, size: int, start: int) -> list[int]:
    """The numbers of the images that one process takes at that place."""
    batches = pipeline.training_batches(open_records(config.data_path), config, size, start)
    return record_files.numbers(next(iter(batches))[0].numpy())


@pytest.mark.parametrize(
    ("replication", "size", "part"),
    [
        ({}, 10, slice(0, 10)),
        ({"num_replicas": 3, "replica": 1}, 30, slice(10, 20)),
        ({"num_machines": 3}, 30, slice(0, 30)),
    ],
    ids=["alone", "the second of three", "for three machines"],
)
def test_a_process_goes_on_with_its_share_of_the_images_behind_those_seen(
    config, replication, size, part
):
    job = make_job(config, open_records(config.data_path))
    own = Replication(("/cpu:0",), ("/cpu:0",), **replication)
    params = dataclasses.replace(job.params, replication=own)
    images, labels = first_batch(dataclasses.replace(job, params=params), seen=60)
    found = record_files.numbers(images)
    assert found == joint_batch(config, size, start=60)[part]
    assert labels.tolist() == [number % 10 for number in found]
