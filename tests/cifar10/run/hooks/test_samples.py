"""TensorBoard shows the training images of step 1 and of each checkpoint."""

import io
import pathlib

import numpy as np
import pytest
import tensorflow.compat.v1 as tf
from PIL import Image

from cifar10.run.hooks.samples import SamplesHook
from cifar10.step import model_fn, training_step


@pytest.fixture(autouse=True)
def _own_writers():
    """No event file of another test."""
    yield
    tf.summary.FileWriterCache.clear()


def train(hook: SamplesHook, steps: int, saves: tuple[int, ...], images: int = 8) -> None:
    """Takes steps; the pixels of a step's images are its number, and of the n-th image n more."""
    with tf.Graph().as_default():
        step = tf.train.create_global_step().assign_add(1, read_value=True)
        pixels = tf.reshape(tf.range(images, dtype=tf.int64), [-1, 1, 1, 1]) + step
        shape = tf.ones([images, 32, 32, 3], tf.int64)
        tf.cast(pixels * shape, tf.uint8, model_fn.SAMPLES)
        numbers = [tf.cast(one, tf.float64) for one in (step, 0, 0, 0)]
        tf.stack(numbers, name=training_step.REPORT)
        with tf.train.MonitoredSession(hooks=[hook]) as session:
            for number in range(1, steps + 1):
                session.run(step)
                if number in saves:
                    hook.write()
    tf.summary.FileWriterCache.clear()


def pictures(folder: pathlib.Path) -> list[tuple[int, np.ndarray]]:
    return [
        (event.step, np.asarray(Image.open(io.BytesIO(value.image.encoded_image_string))))
        for path in folder.glob("events.*")
        for event in tf.train.summary_iterator(str(path))
        for value in event.summary.value
        if value.tag == "augmented_samples"
    ]


def test_the_first_step_and_each_checkpoint_have_a_picture(tmp_path):
    train(SamplesHook(str(tmp_path)), 7, saves=(1, 3, 7))
    assert [step for step, _ in pictures(tmp_path)] == [1, 3, 7]


def test_a_picture_shows_the_images_of_its_step_in_rows_of_four(tmp_path):
    train(SamplesHook(str(tmp_path)), 3, saves=(3,), images=6)
    _, (_, picture) = pictures(tmp_path)
    assert picture.shape == (2 * 128 + 8, 4 * 128 + 3 * 8, 3)
    corners = picture[::136, ::136, 0].tolist()
    assert corners == [[3, 4, 5, 6], [7, 8, 255, 255]]


def test_a_checkpoint_before_the_first_step_has_no_picture(tmp_path):
    SamplesHook(str(tmp_path)).write()
    assert pictures(tmp_path) == []
