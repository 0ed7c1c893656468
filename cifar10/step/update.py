"""From the towers' losses to new weights: gradients, their means, the optimizer, the counters."""

import functools
from collections.abc import Sequence
from typing import Any, Callable, NamedTuple, Optional

import tensorflow.compat.v1 as tf

from cifar10.config.train_config import TrainConfig
from cifar10.optim import optimizers, schedules
from cifar10.optim.lookahead import Lookahead
from cifar10.step import gradients as reduction
from cifar10.step import saving, towers
from cifar10.step.counters import examples_seen
from cifar10.step.replicas import Replication, SharedState
from cifar10.weights.packed import FlatVariable, Layout


class StepSettings(NamedTuple):
    """What the step needs to know.

    Attributes:
      config: the run's settings.
      replication: this process's place among those that train.
      loss_scaling: gradients may underflow, so scale the loss.
      num_examples: images in the training split.
      total_steps: global step at which training ends.
      reduction: how a machine's towers are summed up, `cpu` or `nccl`.
      should_end_all: when the chief's training ends: whether that of all replicas does.
    """

    config: TrainConfig
    replication: Replication
    loss_scaling: bool
    num_examples: int
    total_steps: int
    reduction: str = "cpu"
    should_end_all: Callable[[], bool] = lambda: True


class Packed(NamedTuple):
    """Where everything that is trained lives."""

    layout: Layout
    weights: FlatVariable
    statistics: Optional[FlatVariable]  # None for a model without batch normalisation


def pack(layout: Layout, replication: Replication) -> Packed:
    """Makes the flat variables."""
    devices = replication.variable_devices
    weights = FlatVariable("packed/weights", layout.weights, devices, trainable=True)
    if not layout.statistics.specs:
        return Packed(layout, weights, None)
    statistics = FlatVariable("packed/statistics", layout.statistics, devices[:1], trainable=False)
    return Packed(layout, weights, statistics)


class Update:
    """From the towers' losses to new weights, statistics and counters.

    Attributes:
      rate: the learning rate of this step.
    """

    def __init__(self, settings: StepSettings, packed: Packed, shared: SharedState) -> None:
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
            self.rate = schedules.learning_rate(
                config,
                self._seen.read_value(),
                settings.num_examples,
                settings.total_steps * self._examples,
                self._examples,
                self._replication.staleness,
            )

    def build(
        self,
        losses: Sequence[tf.Tensor],
        copies: Sequence[tf.Tensor],
        parts: Sequence[towers.Tower],
    ) -> Any:
        """Returns the op that ends the step: everything that it changes has changed."""
        scale = tf.mixed_precision.DynamicLossScale() if self._settings.loss_scaling else None
        gradients = _gradients(losses, copies, scale)
        values, devices = self._collect(gradients, copies, parts)
        if self._rendezvous:
            values = self._rendezvous.mean(values, devices)
            if not self._replication.is_chief:
                over = self._over.variable if self._over else None
                return self._rendezvous.wait(over)
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
        return done

    def early_end(self) -> Optional[Any]:
        """The op that makes of the weights what training ends with; None if they are that anyway.

        For the process that applies the updates, when it ends training before the last step.
        """
        if self._lookahead is None:
            return None
        with tf.device(self._home):
            return self._lookahead.end(self._step.read_value())

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
        self,
        gradients: Sequence[tf.Tensor],
        copies: Sequence[tf.Tensor],
        parts: Sequence[towers.Tower],
    ) -> tuple[list[tf.Tensor], list[str]]:
        """Brings gradients and moments where they are used: means over this process's towers."""
        weights, places, values = self._packed.weights, [], []
        machines = self._mean(gradients)
        copy_on = {copy.device: copy for copy in reversed(copies)}

        @functools.cache
        def pushed(index: int, device: str) -> list[tf.Tensor]:
            """What a machine adds to each piece, worked out on a device that has its mean."""
            decayed = copy_on.get(device, copies[0]) if index == 0 else None
            return self._cut(machines[index][device], decayed)

        for number, piece in enumerate(weights.pieces):
            found = [
                pushed(index, reduction.nearest(held, piece.device).device)[number]
                for index, held in enumerate(machines)
            ]
            with tf.device(piece.device):
                values.append(tf.add_n([tf.cast(part, tf.float32) for part in found]))
            places.append(piece.device)
        if self._packed.statistics is not None:
            moments = self._mean([towers.tower_moments(one) for one in parts])
            device = self._packed.statistics.pieces[0].device
            with tf.device(device):
                values.append(tf.add_n([reduction.nearest(held, device) for held in moments]))
            places.append(self._home)
        return values, places

    def _mean(self, values: Sequence[tf.Tensor]) -> list[dict[str, tf.Tensor]]:
        devices = self._replication.tower_devices
        return reduction.mean_by_machine(values, devices, self._settings.reduction)

    def _cut(self, gradient: tf.Tensor, decayed: Optional[tf.Tensor]) -> list[tf.Tensor]:
        """Makes a machine's gradient ready to be sent, in a part a piece.

        Args:
          gradient: float32 [size].
          decayed: the weights, where this machine adds their decay.
        """
        config, layout = self._settings.config, self._packed.layout
        with tf.device(gradient.device):
            gradient = optimizers.scale_offsets(config, gradient, layout)
            if decayed is not None:
                extent = optimizers.decaying(config, layout)
                gradient = optimizers.add_decay(config, gradient, decayed, extent)
            cut = self._packed.weights.cut(gradient)
            return [tf.cast(part, self._replication.transfer_dtype) for part in cut]

    def _apply(self, gradients: Sequence[tf.Tensor], scale: Any) -> Any:
        config, pieces = self._settings.config, self._packed.weights.pieces
        layout = self._packed.layout
        self._optimizer = optimizers.build(config, self.rate, layout)
        _, decaying = optimizers.decaying(config, layout)
        start, pairs = 0, []
        decay_rate = self.rate
        if scale is not None:  # A step that is left out decays nothing.
            decay_rate = tf.where(optimizers.all_finite(gradients), self.rate, 0.0)
        for gradient, piece in zip(gradients, pieces):
            with tf.device(piece.device):
                decayed = optimizers.decoupled_weight_decay(
                    config, decay_rate, gradient, piece, (start, decaying)
                )
                pairs.append((decayed, piece))
            start += piece.shape[0]
        scaled = optimizers.with_loss_scale(self._optimizer, scale)
        return scaled.apply_gradients(pairs, self._step)

    def _update_statistics(self, moments: tf.Tensor, parts: Sequence[towers.Tower]) -> Any:
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
            seen = towers.statistics_of(
                moments, parts, self._replication.replicas_to_aggregate or 1
            )
            steps = tf.cast(self._step.read_value(), tf.float32)
            decay = tf.minimum(parts[0].layers.norm_decay, (1.0 + steps) / (10.0 + steps))
            return moving.assign_sub((moving.read_value() - seen) * (1.0 - decay))


def _gradients(
    losses: Sequence[tf.Tensor], copies: Sequence[tf.Tensor], scale: Any
) -> list[tf.Tensor]:
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
    scaled = losses if scale is None else _on_towers(losses, copies, lambda loss: loss * scale())
    gradients = tf.gradients(scaled, copies, colocate_gradients_with_ops=True)
    if any(gradient is None for gradient in gradients):
        raise ValueError("the loss does not depend on the weights")
    if scale is None:
        return gradients
    return _on_towers(gradients, copies, lambda gradient: gradient / scale())


def _on_towers(
    values: Sequence[tf.Tensor],
    copies: Sequence[tf.Tensor],
    function: Callable[[tf.Tensor], tf.Tensor],
) -> list[tf.Tensor]:
    """Applies a function to each tower's value where the tower is."""
    results = []
    for value, copy in zip(values, copies):
        with tf.device(copy.device):
            results.append(function(value))
    return results
