"""Names and folders of what is saved, on the real objects."""

from typing import Any, Optional

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from cifar10.tf_internals.saving import CheckpointSaver, NamedTensors


class Saves(tf.train.CheckpointSaverListener):
    def __init__(self) -> None:
        self.steps: list[int] = []

    def after_save(self, session: Any, global_step_value: int) -> None:
        self.steps.append(int(global_step_value))


def train(folder: str, log_folder: Optional[str]) -> list[int]:
    """Trains four steps with a checkpoint every two; returns the steps that listeners heard of."""
    saves = Saves()
    with tf.Graph().as_default():
        step = tf.train.create_global_step().assign_add(1)
        tf.add_to_collection(tf.GraphKeys.SAVERS, tf.train.Saver())
        hook = CheckpointSaver(folder, 2, log_folder, [saves])
        with tf.train.MonitoredSession(hooks=[hook]) as session:
            for _ in range(4):
                session.run(step)
    tf.summary.FileWriterCache.clear()
    return saves.steps


def logged(folder: Any) -> list[str]:
    """The checkpoints that a folder's event files have marks of."""
    return [
        event.session_log.checkpoint_path
        for path in folder.glob("events.out.tfevents.*")
        for event in tf.train.summary_iterator(str(path))
        if event.session_log.status == tf.SessionLog.CHECKPOINT
    ]


def test_checkpoints_are_in_one_folder_and_their_marks_in_the_other(tmp_path):
    saved, log = tmp_path / "saved", tmp_path / "log"
    assert train(str(saved), str(log)) == [0, 2, 4]
    kept = sorted(path.name for path in saved.glob("*.index"))
    assert kept == ["model.ckpt-0.index", "model.ckpt-2.index", "model.ckpt-4.index"]
    assert logged(log) == [str(saved / "model.ckpt")] * 3
    assert list(saved.glob("events*")) == list(log.glob("model*")) == []
    assert not (saved / "graph.pbtxt").exists()


def halves(flat: tf.Variable) -> NamedTensors:
    """A vector of four as two tensors of two."""
    first, second = tf.split(flat.read_value(), 2)
    return NamedTensors(
        flat,
        {"layer/kernel": first, "layer/bias": second},
        "flat",
        lambda restored: flat.assign(tf.concat(restored, 0)),
    )


@pytest.fixture
def saved(tmp_path) -> str:
    with tf.Graph().as_default(), tf.Session() as session:
        flat = tf.get_variable("flat", initializer=[1.0, 2.0, 3.0, 4.0], use_resource=True)
        step = tf.get_variable("step", initializer=7, use_resource=True)
        saver = tf.train.Saver([halves(flat), step])
        session.run(tf.global_variables_initializer())
        return str(saver.save(session, f"{tmp_path}/model.ckpt"))


def test_a_checkpoint_has_the_names_that_it_was_given_and_not_the_variables(saved):
    reader = tf.train.NewCheckpointReader(saved)
    assert reader.get_variable_to_shape_map() == {
        "layer/kernel": [2],
        "layer/bias": [2],
        "step": [],
    }
    np.testing.assert_array_equal(reader.get_tensor("layer/bias"), [3.0, 4.0])


def test_what_was_saved_is_assigned_by_the_function_that_was_given(saved):
    with tf.Graph().as_default(), tf.Session() as session:
        flat = tf.get_variable("flat", [4], use_resource=True)
        tf.train.Saver([halves(flat)]).restore(session, saved)
        assert session.run(flat).tolist() == [1.0, 2.0, 3.0, 4.0]
