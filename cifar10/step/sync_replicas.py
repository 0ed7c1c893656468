"""Synchronous replicas: several processes take one training step together.

Replicas push their gradients into accumulators on the parameter servers. Once enough gradients have
arrived, the chief's step takes their mean and applies it. There is no queue runner besides the
steps, so nothing is left waiting at the end.
"""

from collections.abc import Sequence
from typing import Optional, Union

import tensorflow.compat.v1 as tf

from cifar10.step.params import Replication

STANDING = "sync_standing"  # name of the tensor: see `Rendezvous.keep_for_hooks`
_UPDATES_OF_A_SESSION = 2**40  # at most; enough for 34 years at a thousand updates per second


class Rendezvous:
    """Accumulators for the values of synchronous replicas, and a round that replicas wait for.

    Each update has its own round number, even if the chief goes back to a checkpoint. A gradient
    carries the round of the weights that it was computed from, and gradients of earlier rounds are
    dropped. After pushing its gradient, a replica waits until the round is over.

    An accumulator drops gradients of rounds earlier than its own and accepts all others. So a
    restarted chief must begin with a round above all rounds whose gradients may still arrive. A
    clock cannot give that number: the clock of this machine may be behind that of the machine where
    the chief ran before. A round is therefore the number of the chief's session times 2^40, plus
    the number of updates in that session. Each device with accumulators stores the number of the
    session that last reset it. A new session of the chief reads these numbers from all devices, and
    takes the highest one plus 1. That is enough:

    - A gradient carries a round of the session that was the latest when the gradient's step began.
      That session had reset every device before any replica could read its rounds. So each device
      whose server has not restarted since then stores this session's number, or a later one.
    - A device of a restarted parameter server has lost its number. But no gradient of an earlier
      step reaches it: TensorFlow ends a step with an error if one of its servers has been replaced
      by another process since the step began.

    Args:
      replication: this process's place among those that train.
      averaged: the variables for which replicas push a value in each step, such as a gradient; the
        value has the shape of its variable and is accumulated on the variable's device.

    Attributes:
      round: the number of the current round, an int64 scalar variable.
      current: the round that the values of this step are for, an int64 scalar.
      initializer: the op by which the chief sets the round to 0, which means that none has begun.
    """

    def __init__(self, replication: Replication, averaged: Sequence[tf.Variable]) -> None:
        self._replication = replication
        self._averaged = tuple(averaged)
        self._device = replication.variable_devices[0]
        with tf.device(self._device):
            self.round = shared_counter("sync_round")
            self.current = self.round.read_value()
            # The round of the latest gradient of each replica, so that a hung one can be named.
            self._arrived = [
                shared_counter(f"arrived_{replica}") for replica in range(replication.num_replicas)
            ]
            counters = (self.round, *self._arrived)
            self.initializer = tf.group(*(one.initializer for one in counters))
            # One accumulator for each replica except the chief. The replica waits until it contains
            # a value, and takes all values at once. The chief adds one at the end of a round.
            self._wakes = [
                _accumulator(f"wake_{replica}", [])
                for replica in range(1, replication.num_replicas)
            ]
        self._accumulators = []
        for index, one in enumerate(self._averaged):
            with tf.device(one.device):
                self._accumulators.append(_accumulator(f"sum_{index}", one.shape))

    def push(self, values: Sequence[tf.Tensor]) -> tf.Operation:
        """Pushes this replica's values of a step.

        Args:
          values: one float32 tensor per variable of `averaged`, of the variable's shape.

        Returns:
          The op that pushes them; `mean` and `wait` take it as their argument.
        """
        pushes = []
        for value, one, accumulator in zip(values, self._averaged, self._accumulators):
            with tf.device(one.device):
                pushes.append(accumulator.apply_grad(tf.identity(value), self.current))
        on_device = [push for push in pushes if push.device == pushes[0].device]
        with tf.device(self._device), tf.control_dependencies(on_device):
            arrived = self._arrived[self._replication.replica].assign(self.current)
        return tf.group(*pushes, arrived)

    def keep_for_hooks(self) -> None:
        """Makes the tensor `STANDING`, int64 [1 + replicas].

        It has the round, and the round of each replica's latest gradient.
        """
        with tf.device(self._device):
            tf.stack([one.read_value() for one in (self.round, *self._arrived)], name=STANDING)

    def mean(self, pushed: tf.Operation) -> list[tf.Tensor]:
        """Waits, in the chief, for the values of enough replicas, and returns their means.

        Args:
          pushed: the op that pushes the chief's own values.

        Returns:
          One float32 tensor per variable of `averaged`, of the variable's shape.
        """
        means = []
        with tf.control_dependencies([pushed]):
            for one, accumulator in zip(self._averaged, self._accumulators):
                with tf.device(one.device):
                    taken = accumulator.take_grad(self._replication.replicas_to_aggregate)
                taken.set_shape(one.shape)
                means.append(taken)
        return means

    def close_round(self) -> tf.Operation:
        """Returns the op by which the chief begins the next round and wakes the other replicas."""
        with tf.device(self._device):
            closed = self.round.assign_add(1)
            with tf.control_dependencies([closed]):
                return tf.group(*self._raise_wakes())

    def wait(self, pushed: tf.Operation, over: Optional[tf.Variable] = None) -> tf.Operation:
        """Returns the op by which a replica other than the chief waits for the end of the round.

        Args:
          pushed: the op that pushes the replica's own values.
          over: an int64 scalar variable that is not 0 once training is over, since no round ends
            after that; None: the op waits for the round only.
        """
        wake = self._wakes[self._replication.replica - 1]

        def look() -> list[tf.Tensor]:
            return [self.round.read_value(), over.read_value() if over is not None else no]

        def look_again(*_: tf.Tensor) -> list[tf.Tensor]:
            with tf.control_dependencies([wake.take_grad(1)]):
                return look()

        with tf.device(self._device), tf.control_dependencies([pushed]):
            no = tf.constant(0, tf.int64)
            return tf.while_loop(
                lambda current, ended: tf.equal(current, self.current) & tf.equal(ended, 0),
                look_again,
                look(),
                parallel_iterations=1,
            )[0].op

    def _raise_wakes(self) -> list[tf.Operation]:
        return [wake.apply_grad(tf.constant(0.0), 2**62) for wake in self._wakes]

    def missing(self) -> tf.Tensor:
        """Returns the round's name, string [1], until the chief begins a round; then string [0]."""
        with tf.device(self._device):
            begun = tf.cond(
                tf.raw_ops.VarIsInitializedOp(resource=self.round.handle),
                lambda: self.round.read_value() > 0,
                lambda: tf.constant(False),
            )
            return tf.boolean_mask(tf.constant(["sync_round"]), [~begun])

    def hook(self) -> "RendezvousHook":
        """Returns the chief's hook, by which each of its sessions begins with a new round."""
        return RendezvousHook(self._reset())

    def _reset(self) -> tf.Operation:
        """Returns the op that begins a session's first round.

        It drops the gradients of earlier rounds and wakes the waiting replicas.
        """
        number, noted = self._count_session()
        first = number * _UPDATES_OF_A_SESSION
        emptied = []
        for accumulator in self._accumulators:
            with tf.device(accumulator.accumulator_ref.device), tf.control_dependencies(noted):
                waiting = accumulator.num_accumulated()
                taken = tf.cond(
                    waiting > 0,
                    # A sum, since the shape alone would be known without taking the gradients.
                    lambda one=accumulator, count=waiting: tf.reduce_sum(one.take_grad(count)),
                    lambda: tf.constant(0.0),
                )
                with tf.control_dependencies([taken]):
                    emptied.append(accumulator.set_global_step(first))
        with tf.device(self._device), tf.control_dependencies([*noted, *emptied]):
            begun = self.round.assign(first)
            with tf.control_dependencies([begun]):
                return tf.group(*self._raise_wakes())

    def _count_session(self) -> tuple[tf.Tensor, list[tf.Operation]]:
        """Computes this session's number: 1 plus the highest number that a device stores.

        Returns:
          The number, an int64 scalar, and the ops that store it on the devices.
        """
        holding = [one.accumulator_ref.device for one in self._accumulators]
        numbers, known = [], []
        for index, device in enumerate(dict.fromkeys([self.round.device, *holding])):
            with tf.device(device):
                number = shared_counter(f"sync_session_{index}")
                is_known = tf.raw_ops.VarIsInitializedOp(resource=number.handle)
                known.append(tf.cond(is_known, number.read_value, lambda: tf.constant(0, tf.int64)))
            numbers.append(number)
        own = tf.reduce_max(tf.stack(known)) + 1
        return own, [number.assign(own).op for number in numbers]


class RendezvousHook(tf.train.SessionRunHook):
    """Begins a round that no earlier session of the chief had, whenever a session is created.

    Args:
      reset: the op that begins the round.
    """

    def __init__(self, reset: tf.Operation) -> None:
        self._reset = reset

    def after_create_session(self, session: tf.Session, coord: tf.train.Coordinator) -> None:
        """Runs the op that begins the round."""
        session.run(self._reset)


def _accumulator(name: str, shape: Union[tf.TensorShape, list[int]]) -> tf.ConditionalAccumulator:
    return tf.ConditionalAccumulator(tf.float32, shape, shared_name=name, name=name)


def shared_counter(name: str) -> tf.Variable:
    """Makes an int64 scalar variable that all replicas share and no checkpoint contains.

    Args:
      name: the name by which all replicas find the variable; its initial value is 0.
    """
    return tf.get_variable(
        name,
        [],
        tf.int64,
        tf.zeros_initializer(),
        trainable=False,
        collections=[],
        use_resource=True,
    )


class SharedState:
    """State that replicas share besides the weights: the flag of the end, and the rendezvous.

    Args:
      replication: this process's place among those that train.
      averaged: the variables for which synchronous replicas average a value in each step, such as
        a gradient; each value has the shape of its variable.

    Attributes:
      is_chief: whether this process is the chief.
      over: an int64 scalar, 1 once training is over, even before its last step; every session of
        the chief sets it to 0. None for a process that trains alone.
      rendezvous: where synchronous replicas meet; None otherwise.
    """

    def __init__(self, replication: Replication, averaged: Sequence[tf.Variable]) -> None:
        self.is_chief, self._device = replication.is_chief, replication.variable_devices[0]
        self.over: Optional[tf.Variable] = None
        if replication.num_replicas > 1:
            with tf.device(self._device):
                self.over = shared_counter("training_over")
        self.rendezvous: Optional[Rendezvous] = None
        if replication.replicas_to_aggregate:
            self.rendezvous = Rendezvous(replication, averaged)

    def initializers(self) -> list[tf.Operation]:
        """Returns the ops by which the chief initialises the shared state."""
        found = [] if self.over is None else [self.over.initializer]
        return found + ([self.rendezvous.initializer] if self.rendezvous else [])

    def missing(self) -> list[tf.Tensor]:
        """Returns the names of what the chief has not initialised yet, string tensors [0] or [1].

        The other replicas wait until all of these tensors are empty.
        """
        found = []
        if self.over is not None:
            with tf.device(self._device):
                known = tf.raw_ops.VarIsInitializedOp(resource=self.over.handle)
                found.append(tf.boolean_mask(tf.constant(["training_over"]), [~known]))
        return found + ([self.rendezvous.missing()] if self.rendezvous else [])

    def end_all(self) -> Optional[tf.Operation]:
        """Returns the chief's op that ends training: it raises the flag and wakes who waits.

        It is None in other replicas, and in a process that trains alone.
        """
        if self.over is None or not self.is_chief:
            return None
        with tf.device(self._device):
            raised = self.over.assign(1)
            with tf.control_dependencies([raised]):
                return self.rendezvous.close_round() if self.rendezvous else raised.op

    def chief_hooks(self) -> list[tf.train.SessionRunHook]:
        """Returns the chief's hooks; an empty list in other replicas."""
        return [self.rendezvous.hook()] if self.rendezvous and self.is_chief else []
