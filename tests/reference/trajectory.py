"""Trains some steps of the reference in float64, without any code of `cifar10`."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow.compat.v1 as tf

from tests.reference.networks import Pass, logits_of, loss_of
from tests.reference.rules import Lookahead, Rule, Settings, Values, moved_statistics

Batch = tuple[Any, Any]  # images uint8 [N, 32, 32, 3], labels int64 [N]
_STATISTICS = ("/moving_mean", "/moving_variance")


class Start(NamedTuple):
    """The counters before the first step, and the length of the run."""

    step: int
    examples_seen: int
    total_steps: int
    num_examples: int  # training images in an epoch


class Step(NamedTuple):
    """The figures of one training step, and the values after it."""

    logits: Any  # [N, 10]
    loss: float
    gradients: Values  # with weight decay
    doubt: float  # the largest of `Pass.doubts`
    values: Values  # weights and moving statistics after the step


class Graph:
    """The logits, loss and gradients of a network, as functions of values, batch and decisions.

    Args:
      settings: the settings of the run.
      values: weights and moving statistics, by name, for their shapes.
      count: number of images in a batch.
      groups: number of towers, each of which normalises its part of the batch.
      training: whether there are gradients, and batch normalisation uses statistics of the batch,
        not the moving ones.
    """

    def __init__(
        self, settings: Settings, values: Values, count: int, groups: int, training: bool = True
    ) -> None:
        self._graph = tf.Graph()
        with self._graph.as_default():
            self._fed = {
                name: tf.placeholder(tf.float64, value.shape) for name, value in values.items()
            }
            self._images = tf.placeholder(tf.float64, [count, 32, 32, 3])
            self._labels = tf.placeholder(tf.int64, [count])
            normalises_by = "batch" if training else "moving"
            made = Pass(self._fed, normalises_by, groups, settings.batch_norm_epsilon)
            self.logits = logits_of(settings.model, made, self._images)
            self.loss = loss_of(self.logits, self._labels, settings.label_smoothing)
            self.gradients = self._gradients(weights_of(values)) if training else {}
        self.moments, self.decisions, self.doubts = made.moments, made.decisions, made.doubts
        self._session = tf.Session(graph=self._graph, config=_as_written())

    def _gradients(self, names: Sequence[str]) -> dict[str, Any]:
        return dict(zip(names, tf.gradients(self.loss, [self._fed[name] for name in names])))

    def run(self, fetches: Any, values: Values, batch: Batch, decisions: Sequence[Any] = ()) -> Any:
        """Returns the values of `fetches`.

        Args:
          fetches: tensors of the graph.
          values: weights and moving statistics, by name.
          batch: images and labels.
          decisions: decisions of all ReLUs and max poolings; empty: the network's own.

        Raises:
          ValueError: the number of decisions is wrong.
        """
        feed = {self._fed[name]: value for name, value in values.items()}
        feed.update(zip((self._images, self._labels), batch))
        if decisions:
            if len(decisions) != len(self.decisions):
                raise ValueError(f"{len(self.decisions)} decisions, got {len(decisions)}")
            feed.update(zip(self.decisions, decisions))
        return self._session.run(fetches, feed)


def _as_written() -> Any:
    """Returns a session config that skips graph rewriting, which takes longer than it saves."""
    config = tf.ConfigProto()
    config.graph_options.rewrite_options.disable_meta_optimizer = True
    return config


def weights_of(values: Values) -> list[str]:
    """Returns the names of the trainable weights."""
    fixed = (*_STATISTICS, "/projection")
    return [name for name in values if not name.endswith(fixed)]


def train(
    settings: Settings,
    first: Values,
    batches: Sequence[Batch],
    decisions: Sequence[Sequence[Any]],
    groups: int,
    start: Start,
) -> list[Step]:
    """Trains one step per batch.

    Args:
      settings: the settings of the run.
      first: weights and moving statistics before the first step, by name.
      batches: batches of the whole job, one for each step.
      decisions: for each step, the decisions of all ReLUs and max poolings.
      groups: number of towers of the whole job.
      start: the counters before the first step.
    """
    values = {name: np.asarray(value, np.float64) for name, value in first.items()}
    graph = Graph(settings, values, len(batches[0][1]), groups)
    rule = Rule(settings)
    lookahead = Lookahead(settings.lookahead_steps, values, start.total_steps)
    early_end = (settings.whitening_bias_epochs or 0.0) * start.num_examples
    steps = []
    for index, (batch, decided) in enumerate(zip(batches, decisions)):
        step, seen = start.step + index, start.examples_seen + index * len(batch[1])
        fetches = graph.logits, graph.loss, graph.gradients, graph.moments, graph.doubts
        logits, loss, gradients, moments, doubts = graph.run(fetches, values, batch, decided)
        if seen >= early_end:
            gradients.pop("model/whitening/bias", None)  # No momentum moves it further, either.
        weights = {name: values[name] for name in gradients}
        gradients = rule.decayed(weights, gradients)
        moving = {name: values[name] for name in moments}
        values = {
            **values,
            **rule.step(weights, gradients),
            **moved_statistics(settings.batch_norm_decay, step, moving, moments),
        }
        values = lookahead.pull(values, step + 1)
        steps.append(Step(logits, loss, gradients, max(doubts), values))
    return steps
