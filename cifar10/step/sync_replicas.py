"""Synchronous replicas: how several processes take one step of training together.

Gradients meet in accumulators on the parameter servers; the chief's own step takes their mean, once
enough are there, and applies it. There is no queue runner beside the steps, so nothing is left
waiting at the end.
"""

from collections.abc import Sequence
from typing import Optional, Union

import tensorflow.compat.v1 as tf

from cifar10.step.replication import Replication

_UPDATES_OF_A_SESSION = 2**40  # at most; at a thousand a second it lasts for 34 years


class Rendezvous:
    """Where synchronous replicas meet: accumulators, and a round that all of them can wait for.

    A round is a number that no two updates share, not even when the chief goes back to a
    checkpoint: gradients carry the round whose weights they are of, and those of another round are
    dropped. A replica whose gradient is in waits until the round is over.

    An accumulator drops what is of an earlier round than its own, and takes all else. So a chief
    that starts again has to begin above every round whose gradients may still be on their way. No
    clock tells it which: this machine's may be behind that of the machine where it ran before. A
    round therefore is the number of the chief's session, times 2^40, plus the updates in it, and
    each device that holds gradients keeps the number of the session that last reset it. A chief
    that begins asks them all, and takes one more than the highest number. That is enough:

    - A gradient carries a round of the session that was the last when its step began. That session
      had reset every device before anybody could read its rounds. So a device that has not been
      started again since knows its number, or a later one.
    - A device of a parameter server that was started again has forgotten. But no gradient of an
      earlier step reaches it: TensorFlow ends a step with an error when one of its servers is not
      the process any more that it was when the step began.

    Args:
      replication: this process's place.
      averaged: variables. In each step replicas push a value for each of them, such as its
        gradient: of its shape, accumulated on its device.
    """

    def __init__(self, replication: Replication, averaged: Sequence[tf.Variable]) -> None:
        self._replication = replication
        self._averaged = tuple(averaged)
        self._device = replication.variable_devices[0]
        with tf.device(self._device):
            self.round = shared_counter("sync_round")
            self.current = self.round.read_value()
            # One for each other replica, which waits until something is in it. The chief adds to it
            # at the end of a round; the replica takes all that is in it at once.
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
          values: float32, of the shapes of `averaged`.

        Returns:
          The op after which they are in; `mean` and `wait` come after it.
        """
        pushes = []
        for value, one, accumulator in zip(values, self._averaged, self._accumulators):
            with tf.device(one.device):
                pushes.append(accumulator.apply_grad(tf.identity(value), self.current))
        return tf.group(*pushes)

    def mean(self, pushed: tf.Operation) -> list[tf.Tensor]:
        """The chief's wait for the values of enough replicas.

        Args:
          pushed: has put the chief's own values in.

        Returns:
          The means, float32, of the shapes of `averaged`.
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
        """The chief's end of an update: the next round begins, everyone may go on."""
        with tf.device(self._device):
            closed = self.round.assign_add(1)
            with tf.control_dependencies([closed]):
                return tf.group(*self._raise_wakes())

    def wait(self, pushed: tf.Operation, over: Optional[tf.Variable] = None) -> tf.Operation:
        """Another replica's end of a step: waits until the round of its gradient is over.

        Args:
          pushed: has put the replica's own values in.
          over: an int64 scalar that is not 0 once training is over, when no round ends any more.
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

    @property
    def initializer(self) -> tf.Operation:
        """For the chief, before its hook runs: the round is 0, which stands for none."""
        return self.round.initializer

    def missing(self) -> tf.Tensor:
        """What a replica has to wait for before its first step, as names; string [n]."""
        with tf.device(self._device):
            begun = tf.cond(
                tf.raw_ops.VarIsInitializedOp(resource=self.round.handle),
                lambda: self.round.read_value() > 0,
                lambda: tf.constant(False),
            )
            return tf.boolean_mask(tf.constant(["sync_round"]), [tf.logical_not(begun)])

    def hook(self) -> "RendezvousHook":
        """The chief's hook: every session of the chief begins a new round."""
        return RendezvousHook(self._reset())

    def _reset(self) -> tf.Operation:
        """Forgets gradients of earlier rounds, begins a session's first one, wakes who waits."""
        number, noted = self._count_session()
        first = number * _UPDATES_OF_A_SESSION
        emptied = []
        for accumulator in self._accumulators:
            with tf.device(accumulator.accumulator_ref.device), tf.control_dependencies(noted):
                waiting = accumulator.num_accumulated()
                taken = tf.cond(
                    waiting > 0,
                    # Not their size, which is known without taking them.
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
        """Finds this session's number, from 1, above all that the devices know of; notes it there.

        Returns:
          The number, an int64 scalar, and the ops that note it.
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
      reset: the op that does so.
    """

    def __init__(self, reset: tf.Operation) -> None:
        self._reset = reset

    def after_create_session(self, session: tf.Session, coord: tf.train.Coordinator) -> None:
        """Runs it."""
        session.run(self._reset)


def _accumulator(name: str, shape: Union[tf.TensorShape, list[int]]) -> tf.ConditionalAccumulator:
    return tf.ConditionalAccumulator(tf.float32, shape, shared_name=name, name=name)


def shared_counter(name: str) -> tf.Variable:
    """An int64 scalar of that name, 0 at first, for all replicas; no checkpoint holds it."""
    return tf.get_variable(
        name,
        [],
        tf.int64,
        tf.zeros_initializer(),
        trainable=False,
        collections=[],
        use_resource=True,
    )
