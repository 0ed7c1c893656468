"""TensorBoard and metrics.jsonl: the same figures of the same steps, each once, despite kills."""

import io
import json
import pathlib
import types
from typing import Any, Optional

import numpy as np
import pytest
import tensorflow.compat.v1 as tf
from PIL import Image
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from cifar10.config.train_config import TrainConfig
from cifar10.output.history import History, Metrics
from cifar10.run.hooks import summaries
from cifar10.run.hooks.progress import MetricRows, Progress
from tests.cifar10.hooked import Shown, SteppedClock, report


@pytest.fixture(autouse=True)
def _own_writers():
    """No event file of another test."""
    yield
    tf.summary.FileWriterCache.clear()


def test_what_is_taken_back_begins_with_the_step_itself(tmp_path):
    writer, folder = summaries.writer(str(tmp_path)), str(tmp_path)

    def write(*steps: int) -> list[int]:
        value = tf.Summary.Value(tag="curve", simple_value=1.0)
        for step in steps:
            writer.add_summary(tf.Summary(value=[value]), step)
        writer.flush()
        return [event.step for event in EventAccumulator(folder).Reload().Scalars("curve")]

    assert write(1, 2, 3, 4) == [1, 2, 3, 4]
    summaries.take_back(folder, 3)
    assert write(3) == [1, 2, 3]


def sheets(folder: pathlib.Path) -> list[tuple[int, np.ndarray]]:
    """The pictures of training images in TensorBoard's files."""
    summaries.writer(str(folder)).flush()
    return [
        (event.step, np.asarray(Image.open(io.BytesIO(value.image.encoded_image_string))))
        for path in folder.glob("events.*")
        for event in tf.train.summary_iterator(str(path))
        for value in event.summary.value
        if value.tag == summaries.SAMPLES
    ]


def test_a_picture_of_training_images_has_them_in_rows_of_four(tmp_path):
    # The pixels of the n-th image are 3 + n.
    images = np.ones([6, 32, 32, 3], np.uint8) * (3 + np.arange(6)[:, None, None, None])
    summaries.add_samples(str(tmp_path), 7, images.astype(np.uint8))
    ((step, picture),) = sheets(tmp_path)
    assert step == 7
    assert picture.shape == (2 * 128 + 8, 4 * 128 + 3 * 8, 3)
    assert picture[::136, ::136, 0].tolist() == [[3, 4, 5, 6], [7, 8, 255, 255]]


# Curves and rows.


def train(
    folder: pathlib.Path,
    first: int,
    steps: int,
    each: int = 1,
    own_examples: Optional[int] = None,
    stood_before: tuple[int, ...] = (),
) -> list[dict[str, Any]]:
    """Trains from global step `first`, and returns the rows of metrics.jsonl without times.

    A step has 10 images and takes half a second, its loss is its number; other trainers take the
    rest of `each` meanwhile. Rows are of each tenth step.
    """
    clock = SteppedClock()
    clock.stood_before = set(stood_before)
    config = TrainConfig(log_dir=str(folder), summary_steps=10)
    job = types.SimpleNamespace(
        num_examples=50, total_steps=1_000, own_examples=own_examples, config=config
    )
    folder.mkdir(exist_ok=True)
    history = History(None, metrics=Metrics(str(folder / "metrics.jsonl")))
    progress = Progress(Shown(), history, job)  # type: ignore[arg-type]
    progress.clock = clock
    made = MetricRows(progress, job)  # type: ignore[arg-type]
    made.begin(first)
    for number in range(1, steps + 1):
        clock.run()
        made.add(report(first + each * number))
    made.finish()
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [{k: v for k, v in row.items() if k not in ("wall_time", "split")} for row in rows]


def events(folder: pathlib.Path) -> dict[str, list[tuple[int, float]]]:
    """The (step, value) of each curve in TensorBoard's files of training."""
    found: dict[str, list[tuple[int, float]]] = {}
    for path in (folder / "train").glob("events.*"):
        for event in tf.train.summary_iterator(str(path)):
            for value in event.summary.value:
                found.setdefault(value.tag, []).append((event.step, value.simple_value))
    return found


def test_a_row_has_means_since_the_row_before_in_metrics_jsonl_and_in_tensorboard(tmp_path):
    rows = train(tmp_path, first=0, steps=24)
    speed = {"accuracy": 0.5, "learning_rate": 0.1, "images_per_sec": 20.0}
    first = {"step": 1, "loss": 1.0, "accuracy": 0.5, "learning_rate": 0.1}
    assert rows == [
        {**first, "epoch": 0.2, "seconds": 0.5},
        {"step": 10, "loss": 6.0, **speed, "epoch": 2.0, "seconds": 5.0},
        {"step": 20, "loss": 15.5, **speed, "epoch": 4.0, "seconds": 10.0},
        {"step": 24, "loss": 22.5, **speed, "epoch": 4.8, "seconds": 12.0},
    ]
    found = events(tmp_path)
    assert sorted(found) == ["accuracy", "images_per_sec", "learning_rate", "loss"]
    for tag, curve in found.items():
        assert [step for step, _ in curve] == [row["step"] for row in rows if tag in row], tag
        assert [value for _, value in curve] == pytest.approx([r[tag] for r in rows if tag in r])


@pytest.mark.parametrize(
    ("first", "steps", "each", "expected"),
    [
        (7, 18, 1, [10, 20, 25]),
        (10, 10, 1, [20]),
        (19, 2, 1, [20, 21]),
        # Own steps end at 3, 6, 9, ...: the one that passes 10 ends at 12.
        (0, 9, 3, [3, 12, 21, 27]),
    ],
)
def test_rows_are_of_step_1_of_multiples_and_of_the_last_step(
    tmp_path, first, steps, each, expected
):
    assert [row["step"] for row in train(tmp_path, first, steps, each)] == expected


def test_what_others_train_during_a_validation_is_no_measure_of_speed(tmp_path):
    # Before step 15 the clock stood; others went on, so only the steps after it are measured.
    together = train(tmp_path / "a", 0, 10, each=2, own_examples=10, stood_before=(8,))
    assert [row.get("images_per_sec") for row in together] == [None, 40.0, 40.0]
    alone = train(tmp_path / "b", 0, 10, stood_before=(10,))
    assert [row.get("images_per_sec") for row in alone] == [None, 20.0]
