"""Evaluations of one Estimator that keep their graph and session from one to the next.

Touches: `evaluate` of a tf.estimator.Estimator, which is replaced on the object; its method
`_evaluate_build_graph`; `_write_dict_to_summary` and `_write_checkpoint_path_to_summary` of
`tensorflow_estimator.python.estimator.estimator`.

Why: each call of Estimator's own `evaluate` builds the graph, makes a session and lets TensorFlow
optimise the graph, all of them the same as before. Estimator has no argument to keep them, and
refuses subclasses that override a method.
"""

from collections.abc import Sequence
from typing import Any, Callable, Optional

import tensorflow.compat.v1 as tf
from tensorflow_estimator.python.estimator import estimator as estimator_lib

InputFn = Callable[[], tf.data.Dataset]  # makes a data set of (features, labels)


class _Session(tf.Session):
    """A session that outlives the tf.train.MonitoredSession of each evaluation."""

    def close(self) -> None:
        """Does nothing; `end` closes the session."""

    def end(self) -> None:
        """Closes the session and frees its memory."""
        super().close()


class _Kept(tf.train.SessionCreator):
    """The graph of all evaluations and its session.

    Args:
      estimator: the Estimator.
      data: makes a data set; those of all evaluations have elements of the same kind.
    """

    def __init__(self, estimator: tf.estimator.Estimator, data: InputFn) -> None:
        self.graph, config = tf.Graph(), estimator.config
        self._begins: dict[Optional[str], tf.Operation] = {}
        with self.graph.as_default():
            _, self._update, self._figures, _ = estimator._evaluate_build_graph(
                lambda: self._elements(data()), hooks=[]
            )
            self._saver = tf.train.Saver(sharded=True)
            self._reset = tf.local_variables_initializer()
            self.session = _Session(config.evaluation_master, config=config.session_config)

    def run(
        self,
        name: Optional[str],
        data: InputFn,
        checkpoint: str,
        hooks: Sequence[tf.train.SessionRunHook],
    ) -> dict[str, Any]:
        """Runs over a whole data set once; returns the metrics and the global step by name."""
        if name not in self._begins:
            with tf.device("/cpu:0"):
                self._begins[name] = self._iterator.make_initializer(data())
        self._begin, self._checkpoint = self._begins[name], checkpoint
        final = tf.train.FinalOpsHook(self._figures)
        with tf.train.MonitoredSession(self, [*hooks, final]) as session:
            while not session.should_stop():
                session.run(self._update)
        figures: dict[str, Any] = final.final_ops_values
        return figures

    def create_session(self) -> tf.Session:
        """Restores the checkpoint's weights, resets the metrics and begins the data set anew.

        The MonitoredSession of an evaluation calls this method after the hooks' `begin`.
        """
        self._saver.restore(self.session, self._checkpoint)
        self.session.run([self._reset, self._begin])
        return self.session

    def _elements(self, data: tf.data.Dataset) -> Any:
        """Returns (features, labels) of the data set that has begun last, of the kind of `data`."""
        kind = tf.data.get_output_types(data), tf.data.get_output_shapes(data)
        self._iterator = tf.data.Iterator.from_structure(*kind)
        return self._iterator.get_next()


class KeptEvaluation:
    """Evaluates as an Estimator does, with the same figures and events, in one graph and session.

    The model_fn's EVAL spec must have no hooks and no scaffold of its own, and its graph must not
    depend on the split. The graph is built in the first evaluation. After an exception, the next
    evaluation builds it anew.

    Args:
      estimator: the Estimator.
    """

    def __init__(self, estimator: tf.estimator.Estimator) -> None:
        self._estimator = estimator
        self._kept: Optional[_Kept] = None

    def evaluate(
        self,
        input_fn: InputFn,
        steps: None = None,
        hooks: Optional[Sequence[tf.train.SessionRunHook]] = None,
        checkpoint_path: Optional[str] = None,
        name: Optional[str] = None,
    ) -> dict[str, Any]:
        """Evaluates a checkpoint, as `tf.estimator.Estimator.evaluate` does.

        Args:
          input_fn: function that makes the data set. The first one of each name is used for all
            evaluations of that name.
          steps: None; an evaluation always covers the whole data set.
          hooks: hooks of this evaluation.
          checkpoint_path: the checkpoint; it must be given.
          name: name of the evaluation, for the folder of its events.

        Raises:
          ValueError: `steps` is given, or there is no such checkpoint.
        """
        if steps is not None or checkpoint_path is None:
            raise ValueError("a kept evaluation needs a checkpoint and covers the whole data set")
        try:
            if self._kept is None:
                self._kept = _Kept(self._estimator, input_fn)
            with self._kept.graph.as_default():
                figures = self._kept.run(name, input_fn, checkpoint_path, hooks or [])
                folder, step = self._estimator.eval_dir(name), figures[tf.GraphKeys.GLOBAL_STEP]
                estimator_lib._write_dict_to_summary(folder, figures, step)
                estimator_lib._write_checkpoint_path_to_summary(folder, checkpoint_path, step)
        except BaseException:
            self.close()
            raise
        return figures

    def replace_in(self, trainer: tf.estimator.Estimator) -> tf.estimator.Estimator:
        """Makes another Estimator of the same model evaluate here; returns that Estimator."""
        trainer.evaluate = self.evaluate
        return trainer

    def close(self) -> None:
        """Frees the memory of the graph and its session; the next evaluation makes them anew."""
        if self._kept is not None:
            self._kept.session.end()
        self._kept = None
