"""Measures the errors of the pipeline's training steps against the reference."""

from typing import Any, NamedTuple, Optional

import numpy as np

from tests.reference import pipeline, trajectory
from tests.reference.cases import START, Case, Tolerance, draw, draw_batches, model_values
from tests.reference.rules import Settings, Values


class Errors(NamedTuple):
    """The largest error of each kind, as a share; None if there is nothing to compare.

    Attributes:
      logits: error of the logits of any step, divided by the step's largest logit.
      loss: error of the loss of any step, divided by the loss.
      masks: largest change of a layer's output in the first step because the pipeline's ReLU or max
        pooling decided differently from the reference, divided by the layer's largest output.
      later_masks: the same in later steps, whose weights differ, too.
      gradients: error of a variable's gradient in the first step, weight decay included, divided by
        the variable's largest gradient.
      updates: error of a weight variable's change over three steps, divided by that change, both as
        root mean squares.
      statistics: the same error for the moving statistics.
      evaluation: error of the logits in evaluation after three steps, divided by the largest logit.
    """

    logits: float
    loss: float
    masks: float
    later_masks: float
    gradients: float
    updates: float
    statistics: Optional[float]
    evaluation: Optional[float]

    def beyond(self, allowed: Tolerance) -> dict[str, float]:
        """Returns the errors that are larger than allowed, by name; NaN counts as larger."""
        limits = {
            "masks": allowed.logits / 2,
            "later_masks": allowed.later,
            "gradients": allowed.gradients,
            "updates": allowed.updates,
            "statistics": allowed.updates,
        }
        return {
            name: error
            for name, error in self._asdict().items()
            if error is not None and not error <= limits.get(name, allowed.logits)
        }


def measure(case: Case) -> Errors:
    """Trains three steps with the pipeline and with the reference; returns the errors."""
    settings, batches = case.settings, draw_batches()
    first: Values = {}

    def begin(saved: Values) -> Values:
        first.update(draw(saved))
        return first

    found = pipeline.train(case.config, case.plan, case.trainers, begin, batches)
    before = model_values(first)
    groups = case.towers * case.trainers
    expected = trajectory.train(
        settings, before, batches, [step.decisions for step in found], groups, START
    )
    after = model_values(found[-1].saved)
    weights = trajectory.weights_of(before)
    statistics = [name for name in before if "moving" in name]
    gradients = first_gradients(settings, found[0].saved, weights)
    return Errors(
        logits=max(_error(step.logits, other.logits) for step, other in zip(found, expected)),
        loss=max(_error(step.loss, other.loss) for step, other in zip(found, expected)),
        masks=expected[0].doubt,
        later_masks=max(step.doubt for step in expected[1:]),
        gradients=max(_error(gradients[name], expected[0].gradients[name]) for name in weights),
        updates=max(_moved(name, before, after, expected[-1].values) for name in weights),
        statistics=max(
            (_moved(name, before, after, expected[-1].values) for name in statistics), default=None
        ),
        evaluation=_evaluation(case, found[-1].saved, batches[0]) if case.evaluates else None,
    )


def first_gradients(settings: Settings, saved: Values, weights: list[str]) -> Values:
    """Returns the gradients of the first step, computed from the optimizer's slots after it.

    A momentum that begins at zero is then the gradient, and Adam's first moment is a tenth of it.

    Args:
      settings: the settings of the run.
      saved: the values of a checkpoint after the first step, by name.
      weights: names of the weights.
    """
    if settings.optimizer == "adam":
        return {name: saved[f"{name}/Adam"] / (1 - 0.9) for name in weights}
    slot = "Muon" if settings.optimizer == "muon" else "Momentum"
    return {name: saved[f"{name}/{slot}"] for name in weights}


def _evaluation(case: Case, saved: Values, batch: trajectory.Batch) -> float:
    found = pipeline.logits_in_evaluation(case.config, case.plan, saved, batch[0])
    values = model_values(saved)
    graph = trajectory.Graph(case.settings, values, len(batch[0]), 1, training=False)
    return _error(found, graph.run(graph.logits, values, batch))


def _moved(name: str, before: Values, after: Values, expected: Values) -> float:
    change = expected[name] - before[name]
    return float(np.linalg.norm(after[name] - expected[name]) / np.linalg.norm(change))


def _error(found: Any, expected: Any) -> float:
    """Returns the largest difference as a share of the largest expected number."""
    error = np.abs(np.asarray(found, np.float64) - expected).max()
    return float(error / np.abs(expected).max())
