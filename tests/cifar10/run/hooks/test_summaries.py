"""TensorBoard's events are of steps that do not depend on kills, and each step counts once."""

import io
import pathlib

import numpy as np
import pytest
import tensorflow.compat.v1 as tf
from PIL import Image
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from cifar10.run.hooks import summaries
from cifar10.run.hooks.summaries import ModelSummaries, Samples


@pytest.fixture(autouse=True)
def _own_writers():
    """No event file of another test."""
    yield
    tf.summary.FileWriterCache.clear()


def rows(folder: pathlib.Path) -> list[int]:
    """The steps that TensorBoard shows of `curve`."""
    summaries.writer(str(folder)).flush()
    return shown(folder)


def shown(folder: pathlib.Path) -> list[int]:
    """As a process sees it that is not this one."""
    found = EventAccumulator(str(folder)).Reload()
    return [event.step for event in found.Scalars("curve")] if found.Tags()["scalars"] else []


def write(folder: pathlib.Path, *steps: int) -> None:
    value = tf.Summary.Value(tag="curve", simple_value=1.0)
    for step in steps:
        summaries.writer(str(folder)).add_summary(tf.Summary(value=[value]), step)


def train(folder: pathlib.Path, first: int, steps: int, each: int = 1, name: str = "curve") -> None:
    """Takes steps from global step `first`; other trainers take the rest of `each` meanwhile."""
    made = ModelSummaries(10, str(folder))
    with tf.Graph().as_default(), tf.Session() as session:
        tf.summary.scalar(name, tf.constant(1.0))
        made.find()
        made.begin(first)
        for step in range(first, first + steps * each, each):
            made.add(step + each, session.run(made.due(step)))


@pytest.mark.parametrize(
    ("first", "steps", "each", "expected"),
    [
        (0, 25, 1, [1, 10, 20]),
        (7, 18, 1, [10, 20]),
        (10, 15, 1, [20]),
        (19, 2, 1, [20]),
        # Own steps end at 3, 6, 9, ...: the one after 9 may be 10; the one after 18 is 19 at least.
        (0, 9, 3, [3, 12, 24]),
        (29, 9, 3, [32, 44, 53]),
    ],
)
def test_summaries_are_of_step_1_and_of_multiples(tmp_path, first, steps, each, expected):
    train(tmp_path, first, steps, each)
    assert rows(tmp_path) == expected


def test_estimators_summary_of_the_loss_is_not_written_a_second_time(tmp_path):
    train(tmp_path, first=0, steps=3, name="loss")
    assert rows(tmp_path) == []


def test_what_is_taken_back_begins_with_the_step_itself(tmp_path):
    write(tmp_path, 1, 2, 3, 4)
    summaries.take_back(str(tmp_path), 3)
    assert rows(tmp_path) == [1, 2]
    write(tmp_path, 3)
    assert rows(tmp_path) == [1, 2, 3]


def test_a_writer_is_to_be_had_in_eager_mode_and_is_one_a_folder(tmp_path):
    assert tf.executing_eagerly()
    assert summaries.writer(str(tmp_path)) is summaries.writer(str(tmp_path))


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


def test_the_first_step_and_each_checkpoint_have_a_picture_of_their_images(tmp_path):
    samples = Samples(str(tmp_path))
    samples.write()  # A checkpoint before the first step has none.
    for step in range(1, 8):
        # The pixels of a step's images are its number, and of the n-th image n more.
        images = np.ones([6, 32, 32, 3], np.uint8) * (step + np.arange(6)[:, None, None, None])
        samples.add(step, images)
        if step in (1, 3, 7):
            samples.write()
    found = sheets(tmp_path)
    assert [step for step, _ in found] == [1, 3, 7]
    _, picture = found[1]
    assert picture.shape == (2 * 128 + 8, 4 * 128 + 3 * 8, 3)
    assert picture[::136, ::136, 0].tolist() == [[3, 4, 5, 6], [7, 8, 255, 255]]
