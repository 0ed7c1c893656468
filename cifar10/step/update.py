"""From the mean gradient to new weights: decay, the optimizer, moving statistics, counters."""

from collections.abc import Sequence
from typing import Any, Optional

import tensorflow.compat.v1 as tf

from cifar10.optim import optimizers
from cifar10.step import towers
from cifar10.step.params import ModelParams
from cifar10.step.state import TrainingState


def apply_update(
    state: TrainingState,
    gradients: Sequence[tf.Tensor],
    moments: Sequence[tf.Tensor],
    parts: Sequence[towers.Tower],
    params: ModelParams,
    scale: Optional[tf.mixed_precision.LossScale] = None,
) -> Any:
    """Builds the op that ends the step: everything that it changes has changed.

    Args:
      state: what it changes.
      gradients: float32 [size of the piece] a piece of the weights, the mean over all images of the
        step.
      moments: one tensor, float32 [2 * channels], or none: see `gradients.average_moments`.
      parts: this process's towers.
      params: settings, length of the run.
      scale: of fp16, which leaves steps out that overflow; or None.
    """
    shared = state.shared
    if shared.rendezvous:
        # Synchronous replicas: the chief goes on with the mean of all, the others wait for it.
        pushed = shared.rendezvous.push([*gradients, *moments])
        if not params.place.is_chief:
            return shared.rendezvous.wait(pushed, shared.over.variable if shared.over else None)
        values = shared.rendezvous.mean(pushed)
        gradients, moments = values[: len(gradients)], values[len(gradients) :]
    # They read the step before it is counted.
    updates = [_update_statistics(state, seen, parts, params) for seen in moments]
    # From here on everything is where the variables are: not even a constant has to cross.
    with tf.device(state.device):
        with tf.control_dependencies(updates):
            applied = _apply_gradients(state, gradients, params, scale)
        if state.lookahead:
            with tf.control_dependencies([applied]):
                applied = state.lookahead.pull(state.step.read_value())
        # This step's rate is read before this step's examples are counted.
        with tf.control_dependencies([applied]):
            done = state.seen.assign_add(params.examples_per_step)
        if shared.rendezvous:
            with tf.control_dependencies([done]):
                done = shared.rendezvous.close_round()
    return done


def _apply_gradients(
    state: TrainingState,
    gradients: Sequence[tf.Tensor],
    params: ModelParams,
    scale: Optional[tf.mixed_precision.LossScale],
) -> Any:
    """The op that takes the optimizer's step and counts it.

    Args:
      state: what it changes.
      gradients: float32 [size of the piece] a piece of the weights.
      params: the settings.
      scale: see `apply_update`.
    """
    if params.config.optimizer == "adam" and params.config.weight_decay != 0:
        gradients = _decay(state, gradients, params, scale)
    scaled = optimizers.with_loss_scale(state.optimizer, scale)
    return scaled.apply_gradients(list(zip(gradients, state.weights.pieces)), state.step)


def _decay(
    state: TrainingState,
    gradients: Sequence[tf.Tensor],
    params: ModelParams,
    scale: Optional[tf.mixed_precision.LossScale],
) -> list[tf.Tensor]:
    """Adam's decay of every piece; returns the gradients, of the same shapes, known after it."""
    rate = state.rate
    if scale is not None:  # A step that is left out decays nothing.
        rate = tf.where(optimizers.all_finite(gradients), state.rate, 0.0)
    known = []
    for index, (gradient, piece) in enumerate(zip(gradients, state.weights.pieces)):
        with tf.device(piece.device):
            decay = state.weights.cut(optimizers.weight_decay(params.config, state.layout))[index]
            known.append(optimizers.decoupled_weight_decay(rate, gradient, piece, decay))
    return known


def _update_statistics(
    state: TrainingState,
    moments: tf.Tensor,
    parts: Sequence[towers.Tower],
    params: ModelParams,
) -> Any:
    """Moves the moving statistics towards what all towers saw.

    Early on the decay is (1 + step) / (10 + step), so that the zeros and ones that the statistics
    start from are soon forgotten: with a decay of .997 alone they would weigh 22 % after 500 steps.

    Args:
      state: has the statistics, float32 [2 * channels].
      moments: what all towers saw, float32 [2 * channels].
      parts: this process's towers.
      params: the settings.
    """
    if state.statistics is None:
        raise ValueError("this model has no moving statistics")
    (moving,) = state.statistics.pieces
    with tf.device(moving.device):
        seen = towers.statistics_of(moments, parts, params.place.replicas_to_aggregate or 1)
        steps = tf.cast(state.step.read_value(), tf.float32)
        decay = tf.minimum(parts[0].layers.norm_decay, (1.0 + steps) / (10.0 + steps))
        return moving.assign_sub((moving.read_value() - seen) * (1.0 - decay))
