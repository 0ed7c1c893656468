"""One training step, from a batch to new weights: read this file from top to bottom."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Optional

import numpy as np
import tensorflow.compat.v1 as tf

from cifar10.models.base import Network
from cifar10.ops.layers import Layers
from cifar10.optim import optimizers
from cifar10.step import saving, towers
from cifar10.step.gradients import average_gradients, average_moments, tower_gradients
from cifar10.step.losses import cross_entropy
from cifar10.step.params import ModelParams
from cifar10.step.standardise import standardiser
from cifar10.step.state import TrainingState
from cifar10.weights.packed import Layout, Slices
from cifar10.weights.spec import Recorder

# Tensors that hooks look up by name.
LOSS, ACCURACY = "step_loss", "step_accuracy"
REPORT = "step_report"  # for `StepReport.of`
OVER = "training_is_over"  # whether the chief has ended training, without a step
# Collections of what the chief runs when it ends training: early, before it saves; and so that all
# replicas end theirs, too.
EARLY_END, END_ALL = "early_end", "end_all"


class StepReport(NamedTuple):
    """What a step reports about the whole job, as one tensor.

    Attributes:
      step: the global step after it.
      examples_seen: by the whole job, after it.
      learning_rate: that it used.
      over: whether the chief has ended training.
    """

    step: int
    examples_seen: int
    learning_rate: float
    over: bool

    @classmethod
    def of(cls, numbers: np.ndarray) -> "StepReport":
        """Reads the value of the tensor `REPORT`, float64 [4]."""
        step, seen, rate, over = numbers.tolist()
        return cls(int(step), int(seen), rate, bool(over))


def report_tensor() -> tf.Tensor:
    """The tensor `REPORT`, float64 [4], of the graph that is about to run."""
    return tf.get_default_graph().get_tensor_by_name(f"{REPORT}:0")


class Step(NamedTuple):
    """The graph of a training step.

    Attributes:
      loss: of the batch, a float32 scalar.
      train_op: takes the step.
      state: what it changes.
    """

    loss: tf.Tensor
    train_op: tf.Operation
    state: TrainingState

    def spec(self) -> tf.estimator.EstimatorSpec:
        """What Estimator trains with, with a saver."""
        shared, config = self.state.shared, self.state.params.config
        return tf.estimator.EstimatorSpec(
            tf.estimator.ModeKeys.TRAIN,
            loss=self.loss,
            train_op=self.train_op,
            scaffold=saving.make_scaffold(self.state.saveables(), shared, config),
            training_chief_hooks=shared.chief_hooks(),
        )


def build(model: Network, images: tf.Tensor, labels: tf.Tensor, params: ModelParams) -> Step:
    """Builds the graph of a training step.

    Args:
      model: (Layers, standardised images float32 [n, 32, 32, 3]) -> logits float32 [n, 10].
      images: the batch, uint8 [N, 32, 32, 3].
      labels: int64 [N].
      params: settings, devices, facts about the data.
    """
    place, layers = params.place, params.layers(training=True)
    state = TrainingState(lay_out(model, layers, params.values_from_data), params)
    rendezvous = state.shared.rendezvous

    # 1. The weights are read once, float32 [size], and copied to every tower. A gradient must not
    #    claim a later round than its weights are of, so the round is read first.
    with tf.control_dependencies([rendezvous.current] if rendezvous else []):
        pieces = state.weights.read(place.transfer_dtype)
    copies = towers.copies_of_weights(pieces, place.tower_devices)

    # 2. Each tower turns its part of the batch into logits, float32 [N / towers, 10], and those
    #    into a mean loss.
    parts = towers.build_towers(
        model,
        layers,
        standardiser(params.channel_mean, params.channel_deviation),
        images,
        labels,
        place.tower_devices,
        [Slices(state.layout.weights, copy) for copy in copies],
        _early(state),
    )
    for layer, algorithm in parts[0].layers.convolutions.items():
        tf.logging.info("%s: %s", layer, algorithm)  # --verbose shows it.
    smoothing = params.config.label_smoothing
    losses, accuracies = zip(*(_loss_and_accuracy(one, smoothing) for one in parts))
    loss = tf.identity(tf.add_n(losses) / len(losses), LOSS)
    accuracy = tf.identity(tf.add_n(accuracies) / len(accuracies), ACCURACY)

    # 3. Each tower's gradient, float32 [size], and their mean, in a part a piece of the weights,
    #    where the piece is; and likewise what the batch-norm layers saw.
    gradients = tower_gradients(losses, copies, state.scale)
    mean = average_gradients(gradients, copies, state)
    moments = average_moments(parts, state)

    # 4. New weights, statistics and counters.
    done = apply_update(state, mean, moments, parts)

    _keep_for_hooks(state)
    tf.summary.scalar("loss", loss)
    tf.summary.scalar("accuracy", accuracy)
    tf.summary.scalar("learning_rate", state.rate)
    return Step(loss, _report(done, state), state)


def lay_out(
    model: Network, layers: Layers, values_from_data: Optional[Mapping[str, Any]] = None
) -> Layout:
    """Builds the model in a graph that nobody will run, to learn which variables it has.

    Args:
      model: (Layers, images float32 [N, 32, 32, 3]) -> logits.
      layers: their settings.
      values_from_data: first values that were made from the data, by name.
    """
    recorder = Recorder()
    with tf.Graph().as_default(), towers.model_scope():
        model(layers.for_tower(recorder, lambda tensor: tensor), tf.zeros([1, 32, 32, 3]))
    return Layout(recorder.specs, values_from_data)


def _early(state: TrainingState) -> Optional[tf.Tensor]:
    """Whether the weights of the first epochs still train, a bool scalar; None: there are none."""
    if not state.layout.has_early:
        return None
    params = state.params
    with tf.device(state.device):
        end = int(params.config.whitening_bias_epochs * params.num_examples)
        return state.seen.read_value() < end


def _loss_and_accuracy(tower: towers.Tower, smoothing: float) -> tuple[tf.Tensor, tf.Tensor]:
    """Mean loss and accuracy of a tower's images, float32 scalars on the tower's device."""
    with tf.device(tower.logits.device):
        losses = cross_entropy(tower.labels, tower.logits, smoothing)
        is_right = tf.equal(tf.argmax(tower.logits, axis=1), tower.labels)
        return tf.reduce_mean(losses), tf.reduce_mean(tf.cast(is_right, tf.float32))


def apply_update(
    state: TrainingState,
    gradients: Sequence[tf.Tensor],
    moments: Sequence[tf.Tensor],
    parts: Sequence[towers.Tower],
) -> Any:
    """Builds the op after which all variables of the step have their new values.

    Args:
      state: the variables.
      gradients: float32 [size of the piece] a piece of the weights, the mean over this process's
        towers, with the decay of the weights.
      moments: one tensor, float32 [2 * channels], or none: see `gradients.average_moments`.
      parts: this process's towers.
    """
    shared, params = state.shared, state.params
    if shared.rendezvous:
        # Synchronous replicas: the chief goes on with the mean of all, the others wait for it.
        pushed = shared.rendezvous.push([*gradients, *moments])
        if not params.place.is_chief:
            return shared.rendezvous.wait(pushed, shared.over.variable if shared.over else None)
        values = shared.rendezvous.mean(pushed)
        gradients, moments = values[: len(gradients)], values[len(gradients) :]
    # They read the step before it is counted.
    updates = [_update_statistics(state, seen, parts) for seen in moments]
    # From here on everything is where the variables are: not even a constant has to cross.
    with tf.device(state.device):
        with tf.control_dependencies(updates):
            applied = _apply_gradients(state, gradients)
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


def _update_statistics(
    state: TrainingState, moments: tf.Tensor, parts: Sequence[towers.Tower]
) -> Any:
    """Moves the moving statistics towards what all towers saw.

    Early on the decay is (1 + step) / (10 + step), so that the zeros and ones that the statistics
    start from are soon forgotten: with a decay of .997 alone they would weigh 22 % after 500 steps.

    Args:
      state: has the statistics, float32 [2 * channels].
      moments: what all towers saw, float32 [2 * channels].
      parts: this process's towers.
    """
    (moving,) = state.statistics.pieces
    num_replicas = state.params.place.replicas_to_aggregate or 1
    with tf.device(moving.device):
        seen = towers.statistics_of(moments, parts, num_replicas)
        steps = tf.cast(state.step.read_value(), tf.float32)
        decay = tf.minimum(parts[0].layers.norm_decay, (1.0 + steps) / (10.0 + steps))
        return moving.assign_sub((moving.read_value() - seen) * (1.0 - decay))


def _apply_gradients(state: TrainingState, gradients: Sequence[tf.Tensor]) -> Any:
    """Builds the op that takes the optimizer's step and counts it.

    Args:
      state: what it changes.
      gradients: float32 [size of the piece] a piece of the weights.
    """
    config = state.params.config
    if config.optimizer == "adam" and config.weight_decay != 0:
        gradients = _decay(state, gradients)
    optimizer = state.optimizer
    if state.scale is not None:  # Leaves out steps whose gradients overflow; changes the scale.
        optimizer = tf.mixed_precision.MixedPrecisionLossScaleOptimizer(optimizer, state.scale)
    return optimizer.apply_gradients(list(zip(gradients, state.weights.pieces)), state.step)


def _decay(state: TrainingState, gradients: Sequence[tf.Tensor]) -> list[tf.Tensor]:
    """Applies Adam's decay to every piece; returns the gradients, known after the decay."""
    rate = state.rate
    if state.scale is not None:  # A step that is left out decays nothing.
        rate = tf.where(optimizers.all_finite(gradients), state.rate, 0.0)
    known = []
    for index, (gradient, piece) in enumerate(zip(gradients, state.weights.pieces)):
        with tf.device(piece.device):
            decays = optimizers.weight_decay(state.params.config, state.layout)
            decay = state.weights.cut(decays)[index]
            known.append(optimizers.decoupled_weight_decay(rate, gradient, piece, decay))
    return known


def _keep_for_hooks(state: TrainingState) -> None:
    """Puts what ends training, and whether it has ended, where hooks find it."""
    for name, op in ((EARLY_END, state.early_end()), (END_ALL, state.shared.end_all())):
        if op is not None:
            tf.add_to_collection(name, op)
    if state.shared.over:
        tf.cast(state.shared.over.variable.read_value(), tf.bool, OVER)


def _report(done: Any, state: TrainingState) -> tf.Operation:
    """Builds the op that ends the step, and makes the tensor `REPORT`, float64 [4].

    Args:
      done: op after which all variables have their new values.
      state: has the variables.
    """
    over_flag = state.shared.over
    with tf.device(state.device), tf.control_dependencies([done]):
        over = over_flag.variable.read_value() if over_flag else tf.constant(0, tf.int64)
        figures = (state.step.read_value(), state.seen.read_value(), state.rate, over)
        return tf.stack([tf.cast(one, tf.float64) for one in figures], name=REPORT).op
