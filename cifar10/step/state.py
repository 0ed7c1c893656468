"""The state that a training step changes, weights, statistics and counters, and how it is saved.

A checkpoint contains each layer's variable under the layer's name, however the variable is stored
during training. So evaluation, export and a single process can read a cluster's checkpoints. Only
the chief's machine writes and reads the files; parameter servers need not share a file system with
it.
"""

from collections.abc import Sequence
from typing import Optional

import tensorflow.compat.v1 as tf

from cifar10 import optim
from cifar10.optim.decay import DecayRules, Lookahead
from cifar10.optim.packed import FlatVariable, Layout
from cifar10.optim.schedules import learning_rate
from cifar10.step.params import ModelParams
from cifar10.step.sync_replicas import SyncBarrier, shared_counter
from cifar10.tf_internals import NamedTensors


def examples_seen(device: str) -> tf.Variable:
    """Returns the variable that counts training images, an int64 scalar; the first call makes it.

    Args:
      device: the device of the variable, the same in all tasks.
    """
    with tf.device(device), tf.variable_scope("", reuse=tf.AUTO_REUSE):
        return shared_counter("examples_seen", collections=None)


class TrainingState:
    """The variables of training, and the optimizer, which has variables of its own.

    Args:
      layout: the positions of the model's variables in the flat vectors.
      params: settings, devices, length of the run.

    Attributes:
      layout: the argument `layout`.
      params: the argument `params`.
      device: the device of the counters.
      weights: all weights, float32 [size], in one shard per device.
      statistics: moving means and variances, float32 [2 * channels], in one shard; no shard for a
        model without batch normalisation.
      step: the global step, an int64 scalar.
      examples_seen: the number of training images that the whole job has seen, an int64 scalar.
      rate: the learning rate of this step, a float32 scalar.
      optimizer: the update rule, a tf.train.Optimizer.
      decay: how each weight's gradient is scaled and decays.
      scale: the factor that, in fp16, multiplies losses and divides gradients, so that small
        gradients are not lost; None in other precisions.
      lookahead: the averages of weights and statistics; None without lookahead.
      shared: what the replicas of a cluster share besides the weights; None: it trains alone.
      barrier: `shared`, where updates wait for other replicas; None: they do not.
    """

    def __init__(self, layout: Layout, params: ModelParams) -> None:
        config, replication = params.config, params.replication
        devices = replication.variable_devices
        self.layout, self.params, self.device = layout, params, devices[0]
        self.weights = FlatVariable("packed/weights", layout.weights, devices, trainable=True)
        self.statistics = FlatVariable(
            "packed/statistics", layout.statistics, devices[:1], trainable=False
        )
        shards = [*self.weights.shards, *self.statistics.shards]
        # Synchronous replicas average the gradient of each shard of the weights, and the moments
        # that update the moving statistics.
        self.shared = SyncBarrier(replication, shards) if replication.num_replicas > 1 else None
        self.barrier = self.shared if replication.replicas_to_aggregate else None
        self.step = tf.train.get_global_step()
        self.examples_seen = examples_seen(self.device)
        with tf.device(self.device):
            self.rate = learning_rate(params, self.examples_seen.read_value())
        rule = optim.find(config.optimizer)
        self.optimizer = rule.build(config, self.rate, layout)
        self.decay = DecayRules(rule, config)
        self.scale = tf.mixed_precision.DynamicLossScale() if config.precision == "fp16" else None
        self.lookahead: Optional[Lookahead] = None
        if config.lookahead_steps:
            self.lookahead = Lookahead(config.lookahead_steps, shards, params.total_steps)

    def saved(self) -> list[tuple[FlatVariable, Sequence[tf.Variable]]]:
        """Returns the flat variables, each with its shards, or with slots or averages of them.

        The optimizer's gradients must have been applied before.
        """
        weights, statistics = self.weights, self.statistics
        found = [(weights, weights.shards), (statistics, statistics.shards)]
        rule = self.optimizer
        for name in rule.get_slot_names():
            found.append((weights, [rule.get_slot(shard, name) for shard in weights.shards]))
        if self.lookahead is not None:
            count, averages = len(weights.shards), self.lookahead.averages
            found += [(weights, averages[:count]), (statistics, averages[count:])]
        return [(flat, shards) for flat, shards in found if shards]

    def make_scaffold(self) -> tf.train.Scaffold:
        """Makes the scaffold of training: its saver, and the condition for a replica to start.

        The chief begins a round in each of its sessions, and the other replicas wait for that.
        """
        packed, shared = self.saved(), self.shared
        covered = {shard.name for _, shards in packed for shard in shards}
        plain = [variable for variable in tf.global_variables() if variable.name not in covered]
        saver = tf.train.Saver(
            [*(flat_saveable(flat, shards) for flat, shards in packed), *plain],
            max_to_keep=self.params.config.keep_checkpoints,
            save_relative_paths=True,
        )
        tf.add_to_collection(tf.GraphKeys.SAVERS, saver)  # Hooks look for it there.
        if shared is None or self.params.replication.is_chief:
            begin = [] if shared is None else [shared.begin()]
            begun = tf.group(tf.train.Scaffold.default_local_init_op(), *begin)
            return tf.train.Scaffold(saver=saver, local_init_op=begun)
        missing = tf.concat([tf.report_uninitialized_variables(), shared.missing()], axis=0)
        return tf.train.Scaffold(saver=saver, ready_op=missing)


def flat_saveable(flat: FlatVariable, shards: Sequence[tf.Variable]) -> NamedTensors:
    """Saves a flat variable, or an optimizer's slots for it, as one tensor per layer's variable.

    Args:
      flat: the flat variable, which knows the name, shape and position of each layer's variable.
      shards: the shards of `flat`, or the slot of each shard; float32 [size of the shard] each.
    """
    # "packed/weights_0/Momentum" is the slot "/Momentum" of "packed/weights_0".
    suffix = shards[0].op.name[len(flat.shards[0].op.name) :]
    parts = []
    for shard in shards:
        with tf.device(shard.device):
            parts.append(shard.read_value())
    values = flat.section.unpack(tf.concat(parts, 0))
    named = {name + suffix: value for name, value in values.items()}

    def assign(restored: Sequence[tf.Tensor]) -> tf.Operation:
        """Joins the layers' tensors to one vector and assigns each shard its part."""
        joined = tf.concat([tf.reshape(tensor, [-1]) for tensor in restored], 0)
        return tf.group(*(shard.assign(part) for shard, part in zip(shards, flat.split(joined))))

    return NamedTensors(shards[0], named, flat.shards[0].op.name + suffix, assign)
