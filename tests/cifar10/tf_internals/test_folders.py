"""Estimator still saves in one folder and logs in another."""

from typing import Any, Optional

import numpy as np
import tensorflow.compat.v1 as tf

from cifar10.tf_internals.evaluation_folder import log_evaluations
from cifar10.tf_internals.saver_hook import CheckpointSaver


def model(features, labels, mode):
    step = tf.train.get_or_create_global_step().assign_add(1)
    loss = tf.reduce_mean(features)
    return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=step)


def batches():
    return tf.data.Dataset.from_tensors((np.ones([2, 3], np.float32), np.ones([2])))


def test_events_of_an_evaluation_are_in_the_folder_that_was_chosen(tmp_path):
    estimator = tf.estimator.Estimator(model, str(tmp_path / "model"))
    logged = log_evaluations(estimator, lambda name: str(tmp_path / "logs" / (name or "")))
    logged.train(batches, steps=1)
    logged.evaluate(batches, name="validation")
    tf.summary.FileWriterCache.clear()
    assert list((tmp_path / "logs" / "validation").glob("events.out.tfevents.*"))
    assert list((tmp_path / "model").glob("eval*")) == []


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
