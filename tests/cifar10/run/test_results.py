"""A checkpoint's evaluation; shown mistakes, settings in force, and when a run is finished."""

import dataclasses
import json
import pathlib
from typing import Any

import numpy as np
import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from cifar10.config.train_config import TrainConfig
from cifar10.errors import ConfigError
from cifar10.guard import Guard
from cifar10.host.files import write_json
from cifar10.host.process import StopRequest
from cifar10.input import pipeline
from cifar10.input.records import open_records
from cifar10.output import model_settings
from cifar10.output.metrics import Metrics
from cifar10.run import results
from cifar10.run.job import make_job
from cifar10.run.results import Evaluation
from cifar10.step.devices import plan_devices
from cifar10.step.params import ModelParams, Replication
from tests.cifar10.saved import save_untrained


def evaluation(labels, probabilities):
    count = len(labels)
    images = np.zeros((count, 32, 32, 3), np.uint8) + np.arange(count)[:, None, None, None]
    return Evaluation(
        checkpoint="model.ckpt-5",
        step=5,
        class_names=(),
        metrics={"loss": 1.0, "accuracy": 0.5},
        images=images.astype(np.uint8),
        labels=np.array(labels),
        classes=np.argmax(probabilities, axis=1),
        probabilities=np.array(probabilities, np.float32),
    )


def probability(**classes):
    row = np.zeros(10)
    for name, value in classes.items():
        row[int(name[1:])] = value
    return row


def test_the_mistakes_that_the_model_is_surest_of_come_first():
    rows = [
        probability(c3=0.9, c5=0.1),  # right
        probability(c1=0.6, c2=0.4),  # wrong: 2
        probability(c7=0.8, c0=0.2),  # wrong: 0
        probability(c7=1.0),  # right
        probability(c4=0.6, c9=0.4),  # wrong: 9
    ]
    mistakes = results._worst_mistakes(evaluation([3, 2, 0, 7, 9], rows))
    assert [mistake.index for mistake in mistakes] == [2, 1, 4]
    assert len(results._worst_mistakes(evaluation([1] * 100, np.eye(10)[[2] * 100]))) == 36
    worst = mistakes[0]
    assert (worst.label, worst.predicted) == (0, 7)
    assert (round(worst.probability, 6), round(worst.label_probability, 6)) == (0.8, 0.2)
    assert worst.image.shape == (32, 32, 3)
    assert (worst.image == 2).all()


def test_a_run_is_finished_when_its_result_is_of_the_last_step(tmp_path):
    output = str(tmp_path)
    assert results.describe_finished(output, 12_345) is None
    write_json(
        f"{output}/result.json", {"figures": {"global_step": 12_345, "eval_accuracy": 0.91234}}
    )
    assert results.describe_finished(output, 12_345) is None  # Killed before its report.
    (tmp_path / "report.html").touch()
    assert results.describe_finished(output, 12_345) == (
        f"already trained to step 12,345: eval accuracy 0.9123, report: {output}/report.html, "
        f"result: {output}/result.json\nto train on, raise --train-steps, --train-epochs or the "
        "stopping criterion that ended it; to start anew, name another --output-dir"
    )
    # Killed after the last step of a longer run, before its figures.
    assert results.describe_finished(output, 20_000) is None


@pytest.mark.parametrize("content", ["{", "[]", '{"figures": {"global_step": 12345}}'])
def test_a_damaged_result_is_written_again(tmp_path: pathlib.Path, content):
    (tmp_path / "result.json").write_text(content)
    assert results.describe_finished(str(tmp_path), 12_345) is None


# Settings in force.


def test_what_was_left_to_choose_is_given_as_chosen():
    config = TrainConfig(num_gpus=0, num_towers=1, num_inter_threads=3, num_intra_threads=2)
    plan = dataclasses.replace(plan_devices(config), kernels="own")
    described = results.describe_config(ModelParams(config, plan))
    assert set(described) == {field.name for field in dataclasses.fields(TrainConfig)}
    assert described["weight_decay"] == 2e-4
    assert described["num_layers"] == 44
    assert described["hidden_units"] is None
    assert described["data_format"] == "channels_last"
    assert (described["num_gpus"], described["num_towers"]) == (0, 1)
    assert described["kernels"] == "own"
    assert (described["num_inter_threads"], described["num_intra_threads"]) == (3, 2)


def test_what_was_left_to_fit_the_model_and_the_step_is_given_as_it_was():
    config = TrainConfig(num_gpus=0, num_layers=20, train_batch_size=64)
    params = ModelParams(config, plan_devices(config), num_examples=6_400, total_steps=1_000)
    described = results.describe_config(params)
    assert (described["learning_rate"], described["learning_rate_batch"]) == (0.05, 64)
    assert described["warmup_epochs"] == 0.227273  # 0.5 * 20 / 44
    assert described["residual_scale"] == 0.57735
    asynchronous = Replication(("/cpu:0",), ("/cpu:0",), num_replicas=3)
    described = results.describe_config(dataclasses.replace(params, replication=asynchronous))
    assert described["learning_rate"] == 0.022  # of 20 layers and two others


# Evaluation.


@pytest.fixture
def places(tutorial_data: pathlib.Path, tmp_path: pathlib.Path, pools_stay: None) -> dict[str, Any]:
    """Settings of 23 eval images, with the checkpoint of an MLP."""
    found: dict[str, Any] = {"data_dir": str(tutorial_data), "output_dir": str(tmp_path / "output")}
    save_untrained(TrainConfig(model="mlp", **found))
    return {"model": "mlp", **found}


@pytest.mark.parametrize("augments", [False, True])
def test_an_evaluation_has_a_row_for_each_image_and_is_in_tensorboard_once(
    augments: bool, places: dict[str, Any]
):
    config = TrainConfig(**places, test_time_augmentation=augments, eval_batch_size=10)
    records = open_records(config.data_path)
    job, checkpoint = make_job(config, records), f"{config.output_dir}/model.ckpt-0"
    for _ in range(2):
        found = results.evaluate_split(job, checkpoint, Guard(config, StopRequest()))
    images, labels = zip(*pipeline.evaluation_batches(records, "eval", 23))
    np.testing.assert_array_equal(found.images, images[0])
    np.testing.assert_array_equal(found.labels, labels[0])
    assert found.probabilities.shape == (23, 10)
    is_right = found.probabilities.argmax(axis=1) == found.labels
    assert found.metrics["accuracy"] == pytest.approx(is_right.mean())
    expected = np.zeros((10, 10), int)
    np.add.at(expected, (found.labels, found.probabilities.argmax(axis=1)), 1)
    np.testing.assert_array_equal(found.confusion_matrix, expected)
    assert ("augmented_accuracy" in found.metrics) == augments
    events = EventAccumulator(f"{config.output_dir}/eval").Reload()
    (row,) = events.Scalars("accuracy")
    assert (row.step, row.value) == (0, pytest.approx(found.metrics["accuracy"]))


def test_the_figures_are_written_before_the_report(places, monkeypatch):
    def fail(*_: Any) -> str:
        raise RuntimeError("no page")

    monkeypatch.setattr(results, "render_report", fail)
    config = TrainConfig(**places)
    job, metrics = make_job(config, open_records(config.data_path)), Metrics(config.output_dir)
    for step, speed in ((1, 10.0), (2, 10.0), (3, 1.0)):
        row = {"epoch": 1.0, "loss": 1.0, "accuracy": 0.5, "seconds": 9.0}
        metrics.add("train", step, **row, images_per_sec=speed)
    with pytest.raises(RuntimeError, match="no page"):
        results.finish(job, Guard(config, StopRequest()), metrics, "completed", 11.0)
    result = json.loads((pathlib.Path(config.output_dir) / "result.json").read_text())
    figures = result["figures"]
    assert (figures["eval_examples"], figures["images_per_sec"]) == (23, 10.0)  # the median
    assert (figures["training_seconds"], figures["wall_seconds"]) == (9.0, 11.0)


def test_the_mode_prints_how_much_of_each_class_is_right(places, monkeypatch, capsys):
    found = evaluation([0, 0, 1], np.eye(10)[[0, 1, 1]])
    monkeypatch.setattr(results, "evaluate_split", lambda *_: found)
    results.evaluate(TrainConfig(mode="evaluate", **places), StopRequest())
    lines = [line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines()]
    rows = [["airplane", "0.5000"], ["automobile", "1.0000"], ["bird", "no images"]]
    assert [row for row in rows if row not in lines] == []


def test_an_evaluation_whose_events_cannot_be_written_does_not_begin(places, tmp_path):
    folder = tmp_path / "output/eval"
    folder.write_text("a file")
    with pytest.raises(ConfigError) as refusal:
        results.evaluate(TrainConfig(mode="evaluate", **places), StopRequest())
    start = f"the folder for event files (see --log-dir) {folder} cannot be written to: "
    assert str(refusal.value).startswith(start)


def test_an_evaluation_on_records_of_other_classes_is_refused(places):
    config = TrainConfig(mode="evaluate", **places)
    model_settings.write(config, tuple(f"shape-{index}" for index in range(10)))
    with pytest.raises(ConfigError, match="label 0 is 'shape-0'; in these records it is 'airplan"):
        results.evaluate(config, StopRequest())
