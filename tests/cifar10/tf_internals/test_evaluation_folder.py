"""Estimator still asks its method `eval_dir` where the events of an evaluation belong."""

import numpy as np
import tensorflow.compat.v1 as tf

from cifar10.tf_internals.evaluation_folder import log_evaluations


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
