"""TensorBoard's events are of steps that do not depend on kills, and each step counts once."""

import pathlib

import pytest
import tensorflow.compat.v1 as tf
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from cifar10.output.history import History
from cifar10.run.hooks import summaries
from cifar10.step import training_step


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


def train(
    hook: tf.train.SessionRunHook, first: int, steps: int, each: int = 1, name: str = "curve"
) -> None:
    """Takes steps from global step `first`; other trainers take the rest of `each` meanwhile."""
    with tf.Graph().as_default():
        step = tf.train.create_global_step()
        begun = step.assign(first).op
        setting = tf.train.Scaffold(init_fn=lambda _, session: session.run(begun))
        counted = step.assign_add(each, read_value=True)
        numbers = [tf.cast(one, tf.float64) for one in (counted, 0, 0, 0)]
        tf.stack(numbers, name=training_step.REPORT)
        tf.summary.scalar(name, tf.cast(counted, tf.float32))
        creator = tf.train.ChiefSessionCreator(setting)
        with tf.train.MonitoredSession(creator, [hook]) as session:
            for _ in range(steps):
                session.run(counted)


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
    hook = summaries.SummaryHook(10, str(tmp_path))
    train(hook, first, steps, each)
    assert rows(tmp_path) == expected


def test_estimators_summary_of_the_loss_is_not_written_a_second_time(tmp_path):
    hook = summaries.SummaryHook(10, str(tmp_path))
    train(hook, first=0, steps=3, name="loss")
    assert rows(tmp_path) == []


def test_what_is_taken_back_begins_with_the_step_itself(tmp_path):
    write(tmp_path, 1, 2, 3, 4)
    summaries.take_back(str(tmp_path), 3)
    assert rows(tmp_path) == [1, 2]
    write(tmp_path, 3)
    assert rows(tmp_path) == [1, 2, 3]


def test_what_is_kept_is_in_the_files(tmp_path):
    write(tmp_path, 1, 2)
    assert shown(tmp_path) == []
    history = History(str(tmp_path / "history.json"), [{"step": 2}])
    summaries.keep(history, str(tmp_path))
    assert shown(tmp_path) == [1, 2]
    assert (tmp_path / "history.json").read_text() == '{"train": [{"step": 2}], "validation": []}'


def test_a_session_takes_back_what_came_after_its_checkpoint(tmp_path):
    with tf.Graph().as_default(), tf.Session() as session:
        step = tf.get_variable("global_step", initializer=tf.constant(20, tf.int64))
        session.run(step.initializer)
        tf.train.Saver().save(session, str(tmp_path / "model.ckpt"), 20)
    write(tmp_path / "logs", 10, 20, 21, 30)
    history = History(None, [{"step": 20}, {"step": 21}], [{"step": 20}, {"step": 40}])
    # Another trainer has taken two steps by now.
    train(summaries.ResumeHook(str(tmp_path), str(tmp_path / "logs"), history), first=22, steps=1)
    assert rows(tmp_path / "logs") == [10, 20]
    assert history.as_dict() == {"train": [{"step": 20}], "validation": [{"step": 20}]}


def test_a_writer_is_to_be_had_in_eager_mode_and_is_one_a_folder(tmp_path):
    assert tf.executing_eagerly()
    assert summaries.writer(str(tmp_path)) is summaries.writer(str(tmp_path))
