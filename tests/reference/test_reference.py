"""The reference itself: it has no code of the pipeline, and its gradients fit its losses."""

import pathlib
import re

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from cifar10.step import model_fn
from cifar10.step.params import ModelParams
from tests.reference import networks, rules, trajectory
from tests.reference.cases import CASES, Case, draw_batches, drawn
from tests.reference.rules import Values

MODELS = {case.settings.model: case for case in reversed(CASES)}


@pytest.mark.parametrize("module", [networks, rules, trajectory], ids=lambda one: one.__name__)
def test_the_reference_has_nothing_of_the_pipeline(module) -> None:
    source = pathlib.Path(module.__file__).read_text(encoding="utf-8")
    assert re.findall(r"(?:from|import) (?:cifar10|data_prep|launch|benchmarks)", source) == []


def draw_values(case: Case) -> Values:
    """Returns random weights and moving statistics, named and shaped as in evaluation."""
    with tf.Graph().as_default():
        images, params = (tf.zeros([1, 32, 32, 3], tf.uint8), ModelParams(case.config, case.plan))
        model_fn.model_fn(images, None, tf.estimator.ModeKeys.PREDICT, params)
        shapes = {variable.op.name: variable.shape for variable in tf.global_variables()}
    found = {name: drawn(name, np.zeros(shape)) for name, shape in shapes.items()}
    return {name: value for name, value in found.items() if name.startswith("model/")}


@pytest.mark.parametrize("model", ["resnet", "fastnet"])
def test_its_gradients_are_differences_of_its_losses(model: str) -> None:
    case = MODELS[model]
    values, count = draw_values(case), 4
    batch = tuple(part[:count] for part in draw_batches()[0])
    graph = trajectory.Graph(case.settings, values, count, groups=2)
    # Hold the decisions, since the gradient does not cover a change of a decision.
    gradients, decisions = graph.run((graph.gradients, graph.decisions), values, batch)
    random = np.random.default_rng(5)
    direction = {name: random.normal(size=values[name].shape) for name in gradients}
    # The differences' error grows with the square of the step, which has the same length in each
    # network, however many weights it has.
    width = 1e-3 / np.sqrt(sum(np.sum(way**2) for way in direction.values()))
    losses = []
    for sign in (1, -1):
        moved = {name: values[name] + sign * width * way for name, way in direction.items()}
        losses.append(graph.run(graph.loss, {**values, **moved}, batch, decisions))
    slope = sum(np.sum(gradients[name] * way) for name, way in direction.items())
    assert (losses[0] - losses[1]) / (2 * width) == pytest.approx(slope, rel=1e-5)
