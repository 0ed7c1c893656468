"""What a training step changes: weights, moving statistics, counters."""

from typing import Optional

import tensorflow.compat.v1 as tf

from cifar10.optim import optimizers
from cifar10.optim.learning_rate import learning_rate
from cifar10.optim.lookahead import Lookahead
from cifar10.step import saving
from cifar10.step.counters import examples_seen
from cifar10.step.params import ModelParams
from cifar10.step.replicas import SharedState
from cifar10.step.sync_replicas import Averaged
from cifar10.weights.packed import FlatVariable, Layout


class TrainingState:
    """The variables of training, and the optimizer that keeps some of its own beside them.

    Args:
      layout: of the model's variables.
      params: settings, devices, length of the run.

    Attributes:
      layout: of the model's variables.
      weights: all of them, float32 [size], in a piece a device.
      statistics: moving means and variances, float32 [2 * channels]; None for a model
        without batch normalisation.
      step: the global step, an int64 scalar.
      seen: training images that the whole job has seen, an int64 scalar.
      rate: the learning rate of this step, a float32 scalar.
      optimizer: the update rule.
      lookahead: averages of weights and statistics; None where they are not asked for.
      shared: what the replicas of a cluster share beside.
    """

    def __init__(self, layout: Layout, params: ModelParams) -> None:
        config, place = params.config, params.place
        devices = place.variable_devices
        self.layout, self.device = layout, devices[0]
        self.weights = FlatVariable("packed/weights", layout.weights, devices, trainable=True)
        self.statistics: Optional[FlatVariable] = None
        if layout.statistics.specs:
            self.statistics = FlatVariable(
                "packed/statistics", layout.statistics, devices[:1], trainable=False
            )
        flats = [self.weights, *([self.statistics] if self.statistics else [])]
        pieces = [piece for flat in flats for piece in flat.pieces]
        # A gradient of each piece of the weights, and what the moving statistics are made from.
        self.shared = SharedState(place, [Averaged(one.shape, one.device) for one in pieces])
        self.step, self.seen = tf.train.get_global_step(), examples_seen(self.device)
        with tf.device(self.device):
            self.rate = learning_rate(
                config,
                self.seen.read_value(),
                params.num_examples,
                params.total_steps * params.examples_per_step,
                params.examples_per_step,
                place.staleness,
            )
        self.optimizer = optimizers.build(config, self.rate, layout)
        self.lookahead: Optional[Lookahead] = None
        if config.lookahead_steps:
            self.lookahead = Lookahead(config, pieces, params.total_steps)

    def early_end(self) -> Optional[tf.Operation]:
        """The op that makes of the weights what training ends with; None if they are that anyway.

        For the process that applies the updates, when it ends training before the last step.
        """
        if self.lookahead is None:
            return None
        with tf.device(self.device):
            return self.lookahead.end(self.step.read_value())

    def saveables(self) -> list[saving.FlatSaveable]:
        """What checkpoints hold of the flat variables, under the names of the layers.

        With the optimizer's slots, which it makes when it is applied.
        """
        weights, statistics = self.weights, self.statistics
        found = [saving.FlatSaveable(weights, weights.pieces)]
        if statistics is not None:
            found.append(saving.FlatSaveable(statistics, statistics.pieces))
        for name in self.optimizer.get_slot_names():
            slots = [self.optimizer.get_slot(piece, name) for piece in weights.pieces]
            found.append(saving.FlatSaveable(weights, slots))
        if self.lookahead is not None:
            count, averages = len(weights.pieces), self.lookahead.averages
            found.append(saving.FlatSaveable(weights, averages[:count]))
            if statistics is not None:
                found.append(saving.FlatSaveable(statistics, averages[count:]))
        return found
