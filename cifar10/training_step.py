"""The graph of one training step: towers, gradients, update, counters."""

import functools
from collections.abc import Mapping, Sequence
from typing import Any, Callable, NamedTuple, Optional

import tensorflow.compat.v1 as tf

from cifar10 import optimizers, saving, schedules, towers
from cifar10.config import TrainConfig
from cifar10.counters import examples_seen
from cifar10.layers import Layers
from cifar10.lookahead import Lookahead
from cifar10.losses import cross_entropy
from cifar10.models import Model
from cifar10.replicas import Replication, SharedState
from cifar10.variables import FlatVariable, Layout, Recorder, Slices

Tensor = Any

# Tensors that hooks look up by name.
LOSS, ACCURACY = "step_loss", "step_accuracy"
REPORT = "step_report"  # for `Report.of`
OVER = "training_is_over"  # whether the chief has ended training, without a step


class Report(NamedTuple):
    """What a step says of the whole job, in one tensor.

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
    def of(cls, numbers: Any) -> "Report":
        """Reads the value of the tensor `REPORT`, float64 [4]."""
        step, seen, rate, over = numbers.tolist()
        return cls(int(step), int(seen), rate, bool(over))


class StepSettings(NamedTuple):
    """What the step needs to know.

    Attributes:
      config: the run's settings.
      replication: this process's place among those that train.
      loss_scaling: gradients may underflow, so scale the loss.
      num_examples: images in the training split.
      total_steps: global step at which training ends.
      should_end_all: when the chief's training ends: whether that of all replicas does.
    """

    config: TrainConfig
    replication: Replication
    loss_scaling: bool
    num_examples: int
    total_steps: int
    should_end_all: Callable[[], bool] = lambda: True


def lay_out(
    model: Model,
    make_layers: Callable[..., Layers],
    made: Optional[Mapping[str, Any]] = None,
) -> Layout:
    """Asks a model for its variables, in a graph that nobody will run.

    Args:
      model: (Layers, float32 [N, 32, 32, 3]) -> logits.
      make_layers: makes one tower's Layers.
      made: first values that were made from the data, by name.
    """
    recorder = Recorder()
    with tf.Graph().as_default(), towers.model_scope():
        layers = make_layers(merge=lambda tensor: tensor, source=recorder)
        model(layers, tf.zeros([1, 32, 32, 3]))
    return Layout(recorder.specs, made)


class _Packed(NamedTuple):
    """Where everything that is trained lives."""

    layout: Layout
    weights: FlatVariable
    statistics: Optional[FlatVariable]  # None for a model without batch normalisation


def build(
    model: Model,
    layout: Layout,
    make_layers: Callable[..., Layers],
    batch: tuple[Tensor, Tensor],
    settings: StepSettings,
) -> Any:
    """Builds the step.

    Args:
      model: (Layers, images) -> logits.
      layout: of the model's variables.
      make_layers: makes one tower's Layers.
      batch: images uint8 [N, 32, 32, 3] and labels int64 [N].
      settings: see there.

    Returns:
      A tf.estimator.EstimatorSpec for TRAIN.
    """
    replication = settings.replication
    packed = _pack(layout, replication)
    shared = SharedState(replication)
    # A gradient must not claim a later round than its weights are of, so the round is read first.
    with tf.control_dependencies([shared.rendezvous.current] if shared.rendezvous else []):
        weights = packed.weights.read(replication.transfer_dtype)
    copies = towers.copies_of_weights(weights, replication.tower_devices)
    parts = towers.build_towers(
        model,
        functools.partial(make_layers, early=_early(layout, settings)),
        *batch,
        replication.tower_devices,
        [_slices(packed.layout, copy) for copy in copies],
    )
    smoothing = settings.config.label_smoothing
    losses = [_tower_mean(cross_entropy(one.labels, one.logits, smoothing), one) for one in parts]
    hits = [_tower_mean(_hits(one.labels, one.logits), one) for one in parts]
    loss = tf.identity(tf.add_n(losses) / len(losses), LOSS)
    accuracy = tf.identity(tf.add_n(hits) / len(hits), ACCURACY)
    update = _Update(settings, packed, shared)
    train_op = update.build(losses, copies, parts)
    if shared.over:
        tf.cast(shared.over.variable.read_value(), tf.bool, OVER)
    tf.summary.scalar("loss", loss)
    tf.summary.scalar("accuracy", accuracy)
    tf.summary.scalar("learning_rate", update.rate)
    return tf.estimator.EstimatorSpec(
        tf.estimator.ModeKeys.TRAIN,
        loss=loss,
        train_op=train_op,
        scaffold=saving.make_scaffold(update.saveables(), shared, settings.config),
        training_chief_hooks=shared.chief_hooks(settings.should_end_all),
    )


def _pack(layout: Layout, replication: Replication) -> _Packed:
    """Makes the flat variables."""
    devices = replication.variable_devices
    weights = FlatVariable("packed/weights", layout.weights, devices, trainable=True)
    if not layout.statistics.specs:
        return _Packed(layout, weights, None)
    statistics = FlatVariable("packed/statistics", layout.statistics, devices[:1], trainable=False)
    return _Packed(layout, weights, statistics)


def _slices(layout: Layout, copy: Tensor) -> Slices:
    with tf.device(copy.device):
        return Slices(layout.weights, copy)


def _early(layout: Layout, settings: StepSettings) -> Optional[Tensor]:
    """Whether the weights of the first epochs still train; None where there are none."""
    if not layout.has_early:
        return None
    home = settings.replication.variable_devices[0]
    with tf.device(home):
        end = int(settings.config.whitening_bias_epochs * settings.num_examples)
        return examples_seen(home).read_value() < end


class _Update:
    """From the towers' losses to new weights, statistics and counters.

    Attributes:
      rate: the learning rate of this step.
    """

    def __init__(self, settings: StepSettings, packed: _Packed, shared: SharedState) -> None:
        self._settings, self._packed = settings, packed
        self._over, self._rendezvous = shared.over, shared.rendezvous
        self._replication = settings.replication
        self._home = self._replication.variable_devices[0]
        self._seen, self._step = examples_seen(self._home), tf.train.get_global_step()
        self._optimizer: Any = None
        flats = [packed.weights] + ([packed.statistics] if packed.statistics else [])
        self._lookahead: Optional[Lookahead] = None
        if settings.config.lookahead_steps:
            pieces = [piece for flat in flats for piece in flat.pieces]
            self._lookahead = Lookahead(settings.config, pieces, settings.total_steps)
        config = settings.config
        self._examples = self._replication.examples_per_step(config.train_batch_size)
        with tf.device(self._home):
            self.rate = schedules.scaled_to(config, self._examples) * schedules.learning_rate(
                config,
                self._seen.read_value(),
                settings.num_examples,
                settings.total_steps * self._examples,
            )

    def build(
        self, losses: Sequence[Tensor], copies: Sequence[Tensor], parts: Sequence[towers.Tower]
    ) -> Any:
        """Returns the op that trains one step."""
        scale = tf.mixed_precision.DynamicLossScale() if self._settings.loss_scaling else None
        gradients = _gradients(losses, copies, scale)
        values, devices = self._collect(gradients, copies[0], parts)
        if self._rendezvous:
            values = self._rendezvous.mean(values, devices)
            if not self._replication.is_chief:
                over = self._over.variable if self._over else None
                return self._report([self._rendezvous.wait(over)])
        count = len(self._packed.weights.pieces)
        updates = [self._update_statistics(value, parts) for value in values[count:]]  # 0 or 1
        # From here on everything is where the variables are: not even a constant has to cross.
        with tf.device(self._home):
            with tf.control_dependencies(updates):  # They read the step before it is counted.
                applied = self._apply(values[:count], scale)
            if self._lookahead:
                with tf.control_dependencies([applied]):
                    applied = self._lookahead.pull(self._step.read_value())
            # This step's rate is read before this step's examples are counted.
            with tf.control_dependencies([applied]):
                done = self._seen.assign_add(self._examples)
            if self._rendezvous:
                with tf.control_dependencies([done]):
                    done = self._rendezvous.close_round()
        return self._report([done])

    def saveables(self) -> list[Any]:
        """What checkpoints hold of the flat variables, under the names of the layers."""
        weights, statistics = self._packed.weights, self._packed.statistics
        found = [saving.FlatSaveable(weights, weights.pieces)]
        if statistics is not None:
            found.append(saving.FlatSaveable(statistics, statistics.pieces))
        if self._optimizer is not None:
            for name in self._optimizer.get_slot_names():
                slots = [self._optimizer.get_slot(piece, name) for piece in weights.pieces]
                found.append(saving.FlatSaveable(weights, slots))
        if self._lookahead is not None:
            count, averages = len(weights.pieces), self._lookahead.averages
            found.append(saving.FlatSaveable(weights, averages[:count]))
            if statistics is not None:
                found.append(saving.FlatSaveable(statistics, averages[count:]))
        return found

    def _collect(
        self, gradients: Sequence[Tensor], copy: Tensor, parts: Sequence[towers.Tower]
    ) -> tuple[list[Tensor], list[str]]:
        """Brings gradients and moments where they are used: means over this process's towers."""
        settings, devices = self._settings, self._replication.tower_devices
        weights, dtype = self._packed.weights, self._replication.transfer_dtype
        machines = towers.mean_by_machine(gradients, devices)
        config, layout = settings.config, self._packed.layout
        for index, machine in enumerate(machines):
            with tf.device(machine.device):
                machines[index] = optimizers.scale_offsets(config, machine, layout)
        with tf.device(machines[0].device):
            machines[0] = optimizers.add_decay(
                config, machines[0], copy, optimizers.decaying_size(config, layout)
            )
        cuts = [[tf.cast(part, dtype) for part in weights.cut(one)] for one in machines]
        values, places = [], [piece.device for piece in weights.pieces]
        for place, of_piece in zip(places, zip(*cuts)):
            with tf.device(place):
                values.append(tf.add_n([tf.cast(part, tf.float32) for part in of_piece]))
        if self._packed.statistics is not None:
            moments = towers.mean_by_machine([towers.tower_moments(one) for one in parts], devices)
            with tf.device(self._home):
                values.append(tf.add_n(moments))
            places.append(self._home)
        return values, places

    def _apply(self, gradients: Sequence[Tensor], scale: Any) -> Any:
        config, pieces = self._settings.config, self._packed.weights.pieces
        self._optimizer = optimizers.build(config, self.rate)
        decaying, start, pairs = optimizers.decaying_size(config, self._packed.layout), 0, []
        decay_rate = self.rate
        if scale is not None:  # A step that is left out decays nothing.
            decay_rate = tf.where(optimizers.all_finite(gradients), self.rate, 0.0)
        for gradient, piece in zip(gradients, pieces):
            with tf.device(piece.device):
                decayed = optimizers.decay_apart(
                    config, decay_rate, gradient, piece, (start, decaying)
                )
                pairs.append((decayed, piece))
            start += piece.shape[0]
        scaled = optimizers.with_loss_scale(self._optimizer, scale)
        return scaled.apply_gradients(pairs, self._step)

    def _update_statistics(self, moments: Tensor, parts: Sequence[towers.Tower]) -> Any:
        """Moves the moving statistics towards what all towers saw.

        Early on the decay is (1 + step) / (10 + step), so that the zeros and ones that the
        statistics start from are soon forgotten: with a decay of .997 alone they would weigh 22 %
        after 500 steps.
        """
        statistics = self._packed.statistics
        if statistics is None:
            raise ValueError("this model has no moving statistics")
        (moving,) = statistics.pieces
        with tf.device(moving.device):
            seen = towers.statistics_of(moments, parts, self._replication.aggregate or 1)
            steps = tf.cast(self._step.read_value(), tf.float32)
            decay = tf.minimum(parts[0].layers.norm_decay, (1.0 + steps) / (10.0 + steps))
            return moving.assign_sub((moving.read_value() - seen) * (1.0 - decay))

    def _report(self, done: Sequence[Any]) -> Any:
        """Ends the step: what hooks want to know comes with the answer of its last device."""
        with tf.device(self._home), tf.control_dependencies(done):
            over = self._over.variable.read_value() if self._over else tf.constant(0, tf.int64)
            figures = (self._step.read_value(), self._seen.read_value(), self.rate, over)
            return tf.stack([tf.cast(one, tf.float64) for one in figures], name=REPORT).op


def _gradients(losses: Sequence[Tensor], copies: Sequence[Tensor], scale: Any) -> list[Tensor]:
    """Differentiates each tower's loss by its own copy of the weights.

    One call for all towers: where they share batch statistics, a tower's loss reaches the copies
    of the others too.

    Args:
      losses: G scalars, the mean loss of each tower.
      copies: G copies, float32 [size].
      scale: a tf.mixed_precision.LossScale or None.

    Returns:
      G gradients, float32 [size].
    """
    scaled = losses if scale is None else [loss * scale() for loss in losses]
    gradients = tf.gradients(scaled, copies, colocate_gradients_with_ops=True)
    if any(gradient is None for gradient in gradients):
        raise ValueError("the loss does not depend on the weights")
    return gradients if scale is None else [gradient / scale() for gradient in gradients]


def _hits(labels: Tensor, logits: Tensor) -> Tensor:
    return tf.cast(tf.equal(tf.argmax(logits, axis=1), labels), tf.float32)


def _tower_mean(values: Tensor, tower: towers.Tower) -> Tensor:
    with tf.device(tower.logits.device):
        return tf.reduce_mean(values)
