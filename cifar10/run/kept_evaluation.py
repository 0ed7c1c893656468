"""Evaluations of one model that keep their graph and session from one to the next.

Each call of Estimator's own `evaluate` builds the graph, makes a session and lets TensorFlow
optimise the graph, all of them the same as before. Estimator has no argument to keep them, nor one
for the folder of an evaluation's events, after which TensorBoard names a run.
"""

import contextlib
from collections.abc import Sequence
from typing import Any, Callable

import numpy as np
import tensorflow.compat.v1 as tf

from cifar10.output import event_files
from cifar10.step.model_fn import model_fn
from cifar10.step.params import ModelParams


class KeptEvaluation:
    """Evaluates as an Estimator does, with the same figures, in one graph and session.

    The model_fn's EVAL spec must have no hooks and no scaffold of its own, and its graph must not
    depend on the split. The graph is built in the first evaluation.

    Args:
      params: the parameters of the model_fn.
    """

    def __init__(self, params: ModelParams) -> None:
        self._params = params
        self._session: Any = None
        self._begins: dict[str, tf.Operation] = {}

    def evaluate(
        self,
        input_fn: Callable[[], tf.data.Dataset],
        hooks: Sequence[tf.train.SessionRunHook],
        checkpoint_path: str,
        name: str,
        rows: Sequence[str] = (),
    ) -> dict[str, Any]:
        """Evaluates a checkpoint on a whole data set, as `tf.estimator.Estimator.evaluate` does.

        Args:
          input_fn: function that makes the data set of (features, labels). The first one of each
            name is used for all evaluations of that name, and all have elements of the same kind.
          hooks: their `before_run` is called before each batch; what it raises ends the evaluation.
          checkpoint_path: the checkpoint.
          name: name of the evaluation, for the folder of its events.
          rows: names of tensors with a row for each image, which are among the figures then.
        """
        if self._session is None:
            self._build(input_fn)
        session, batches = self._session, []
        with session.graph.as_default():
            if name not in self._begins:
                with tf.device("/cpu:0"):
                    self._begins[name] = self._iterator.make_initializer(input_fn())
            self._saver.restore(session, checkpoint_path)
            session.run([self._reset, self._begins[name]])
            fetches = self._update, [f"{one}:0" for one in rows]
            with contextlib.suppress(tf.errors.OutOfRangeError):  # It ends the data set.
                while True:
                    for hook in hooks:
                        hook.before_run(None)
                    batches.append(session.run(fetches)[1])
            figures: dict[str, Any] = session.run(self._figures)
        step, summary = figures[tf.GraphKeys.GLOBAL_STEP], tf.Summary()
        for tag, value in sorted(figures.items()):
            if tag != tf.GraphKeys.GLOBAL_STEP and not value.shape:
                summary.value.add(tag=tag, simple_value=float(value))
        folder = self._params.config.log_folder(name)
        # A checkpoint may be evaluated again; its row in TensorBoard is the last one.
        event_files.take_back(folder, step)
        events = event_files.writer(folder)
        events.add_summary(summary, step)
        events.flush()
        return {**figures, **dict(zip(rows, map(np.concatenate, zip(*batches))))}

    def _build(self, data: Callable[[], tf.data.Dataset]) -> None:
        """Builds the graph of all evaluations, and makes its session."""
        with tf.Graph().as_default() as graph:
            step, kind = tf.train.create_global_step(), data()
            self._iterator = tf.data.Iterator.from_structure(
                tf.data.get_output_types(kind), tf.data.get_output_shapes(kind)
            )
            images, labels = self._iterator.get_next()
            spec = model_fn(images, labels, tf.estimator.ModeKeys.EVAL, self._params)
            metrics = {**spec.eval_metric_ops, "loss": tf.metrics.mean(spec.loss)}
            self._update = tf.group(*(update for _, update in metrics.values()))
            self._figures = {name: value for name, (value, _) in metrics.items()}
            self._figures[tf.GraphKeys.GLOBAL_STEP] = step
            self._saver = tf.train.Saver(sharded=True)
            self._reset = tf.local_variables_initializer()
            self._session = tf.Session(graph=graph, config=self._params.plan.session_config)
