"""Synchronous replicas: several processes take one training step together.

Replicas push their gradients into accumulators on the parameter servers. Once enough gradients have
arrived, the chief's step takes their mean and applies it. There is no queue runner besides the
steps, so nothing is left waiting at the end.
"""

from collections.abc import Sequence
from typing import Optional, Union

import tensorflow.compat.v1 as tf

from cifar10.step.params import Replication

ROUNDS = "rounds"  # the collection of a training graph with what `rounds` returns
_OVER = 2**62  # the round in which training is over
_UPDATES_OF_A_SESSION = 2**40  # at most; enough for 34 years at a thousand updates per second


class SyncBarrier:
    """What replicas share besides the weights: the round, and accumulators for synchronous ones.

    The round says that the chief has begun, and at last that training is over. In synchronous
    training, each update has its own round number, even if the chief goes back to a checkpoint. A
    gradient carries the round of the weights that it was computed from, and gradients of earlier
    rounds are dropped. After pushing its gradient, a replica waits until the round is over.

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
      replication: what this process is among several that train.
      averaged: the variables for which synchronous replicas push a value in each step, such as a
        gradient; the value has the shape of its variable and is accumulated on its device.

    Attributes:
      replication: the argument `replication`.
      current: the round that the values of this step are for, an int64 scalar.
    """

    def __init__(self, replication: Replication, averaged: Sequence[tf.Variable]) -> None:
        self.replication, is_synchronous = replication, bool(replication.replicas_to_aggregate)
        self._averaged = tuple(averaged) if is_synchronous else ()
        replicas = range(replication.num_replicas if is_synchronous else 0)
        self._device = replication.variable_devices[0]
        with tf.device(self._device):
            self._round = shared_counter("round")
            self.current = self._round.read_value()
            # The round of the latest gradient of each replica, so that a hung one can be named.
            counters = [shared_counter(f"pushed_round_{replica}") for replica in replicas]
            self._pushed_rounds = counters
            # An accumulator of tokens for each replica except the chief. The replica waits for a
            # token, and takes all of them at once. The chief adds one at the end of a round.
            self._tokens = [_accumulator(f"token_{replica}", []) for replica in replicas[1:]]
        self._accumulators = []
        for index, variable in enumerate(self._averaged):
            with tf.device(variable.device):
                self._accumulators.append(_accumulator(f"sum_{index}", variable.shape))

    def push(self, values: Sequence[tf.Tensor]) -> tf.Operation:
        """Pushes this replica's values of a step.

        Args:
          values: one float32 tensor per variable of `averaged`, of the variable's shape.

        Returns:
          The op that pushes them; `mean` and `wait` take it as their argument.
        """
        pushes = []
        for value, variable, accumulator in zip(values, self._averaged, self._accumulators):
            with tf.device(variable.device):
                pushes.append(accumulator.apply_grad(tf.identity(value), self.current))
        on_device = [push for push in pushes if push.device == pushes[0].device]
        with tf.device(self._device), tf.control_dependencies(on_device):
            arrived = self._pushed_rounds[self.replication.replica].assign(self.current)
        return tf.group(*pushes, arrived)

    def rounds(self) -> tf.Tensor:
        """Returns the round, and that of each replica's latest gradient, int64 [1 + replicas].

        It also lets this replica look again whether its round is over. Two processes may have one
        task's name for some seconds, such as a deleted pod and the one in its place: if the one
        that ends takes the token of a round, the other would wait for ever.
        """
        own = self._tokens[self.replication.replica - 1 : self.replication.replica]
        with tf.device(self._device), tf.control_dependencies(list(map(_add_token, own))):
            return tf.stack([count.read_value() for count in (self._round, *self._pushed_rounds)])

    def mean(self, pushed: tf.Operation) -> list[tf.Tensor]:
        """Waits, in the chief, for the values of enough replicas, and returns their means.

        Args:
          pushed: the op that pushes the chief's own values.

        Returns:
          One float32 tensor per variable of `averaged`, of the variable's shape.
        """
        means = []
        with tf.control_dependencies([pushed]):
            for variable, accumulator in zip(self._averaged, self._accumulators):
                with tf.device(variable.device):
                    means.append(accumulator.take_grad(self.replication.replicas_to_aggregate))
        return means

    def close_round(self) -> tf.Operation:
        """Returns the op by which the chief begins a round and releases the other replicas."""
        with tf.device(self._device):
            return self._release_after(self._round.assign_add(1))

    def wait(self, pushed: tf.Operation) -> tf.Operation:
        """Returns the op by which a replica other than the chief waits for the end of the round.

        Args:
          pushed: the op that pushes the replica's own values.
        """
        token = self._tokens[self.replication.replica - 1]

        def look_again(_: tf.Tensor) -> tf.Tensor:
            with tf.control_dependencies([token.take_grad(1)]):
                return self._round.read_value()

        with tf.device(self._device), tf.control_dependencies([pushed]):
            return tf.while_loop(
                # No round ends once training is over.
                lambda now: tf.equal(now, self.current) & (now < _OVER),
                look_again,
                [self._round.read_value()],
                parallel_iterations=1,
            ).op

    def end_all(self) -> tf.Operation:
        """Returns the chief's op that ends training: nobody waits after it."""
        with tf.device(self._device):
            return self._release_after(self._round.assign(_OVER))

    def is_over(self) -> tf.Tensor:
        """Returns whether training is over, even before its last step, a bool scalar."""
        with tf.device(self._device):
            return self._round.read_value() >= _OVER

    def missing(self) -> tf.Tensor:
        """Returns the round's name, string [1], until the chief begins a round; then string [0]."""
        with tf.device(self._device):
            begun = tf.raw_ops.VarIsInitializedOp(resource=self._round.handle)
            return tf.boolean_mask(tf.constant(["round"]), [~begun])

    def begin(self) -> tf.Operation:
        """Returns the op by which each session of the chief begins a round that no other had.

        It drops the gradients of earlier rounds and releases the waiting replicas.
        """
        # This session's number is 1 plus the highest number that a device stores.
        devices = [accumulator.accumulator_ref.device for accumulator in self._accumulators]
        numbers, known = [], []
        for index, device in enumerate(dict.fromkeys([self._round.device, *devices])):
            with tf.device(device):
                number = shared_counter(f"sync_session_{index}")
                is_known = tf.raw_ops.VarIsInitializedOp(resource=number.handle)
                known.append(tf.cond(is_known, number.read_value, lambda: tf.constant(0, tf.int64)))
            numbers.append(number)
        session = tf.reduce_max(tf.stack(known)) + 1
        stored = [number.assign(session).op for number in numbers]
        first = session * _UPDATES_OF_A_SESSION
        emptied = []
        for held, device in zip(self._accumulators, devices):
            with tf.device(device), tf.control_dependencies(stored):
                waiting = held.num_accumulated()
                taken = tf.cond(
                    waiting > 0,
                    # A sum, since the shape alone would be known without taking the gradients.
                    lambda held=held, count=waiting: tf.reduce_sum(held.take_grad(count)),
                    lambda: tf.constant(0.0),
                )
                with tf.control_dependencies([taken]):
                    emptied.append(held.set_global_step(first))
        ready = [*stored, *emptied, *(pushed.initializer for pushed in self._pushed_rounds)]
        with tf.device(self._device), tf.control_dependencies(ready):
            return self._release_after(self._round.assign(first))

    def _release_after(self, done: tf.Tensor) -> tf.Operation:
        with tf.control_dependencies([done]):
            return tf.group(*map(_add_token, self._tokens))


def _add_token(tokens: tf.ConditionalAccumulator) -> tf.Operation:
    return tokens.apply_grad(tf.constant(0.0), 2**62)


def _accumulator(name: str, shape: Union[tf.TensorShape, list[int]]) -> tf.ConditionalAccumulator:
    return tf.ConditionalAccumulator(tf.float32, shape, shared_name=name, name=name)


def shared_counter(name: str, collections: Optional[Sequence[str]] = ()) -> tf.Variable:
    """Makes an int64 scalar variable that all replicas share.

    Args:
      name: the name by which all replicas find the variable; its initial value is 0.
      collections: see tf.get_variable; by default none, so that no checkpoint contains it.
    """
    return tf.get_variable(
        name,
        [],
        tf.int64,
        tf.zeros_initializer(),
        trainable=False,
        collections=collections,
        use_resource=True,
    )
