"""Estimator's hook still saves in one folder and logs in another."""

from typing import Any, Optional

import tensorflow.compat.v1 as tf

from cifar10.tf_internals.saver_hook import CheckpointSaver


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


def test_without_a_folder_for_the_log_both_are_in_one(tmp_path):
    train(str(tmp_path), None)
    assert logged(tmp_path) == [str(tmp_path / "model.ckpt")] * 3
