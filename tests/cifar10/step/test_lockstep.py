import pytest
import tensorflow.compat.v1 as tf

from cifar10.step.lockstep import Lockstep


def test_merge_gives_every_tower_the_mean():
    with tf.Graph().as_default(), tf.Session() as session:
        lockstep = Lockstep(3)

        def build(index: int):
            first = lockstep.cross_tower_mean(tf.constant(float(index)))
            return first, lockstep.cross_tower_mean(first + 10.0 * index)

        results = lockstep.run(build)
        assert session.run(results) == [(1.0, 11.0)] * 3


def test_towers_are_built_in_the_same_order_every_time():
    def names():
        with tf.Graph().as_default() as graph:
            lockstep = Lockstep(2)
            lockstep.run(
                lambda index: lockstep.cross_tower_mean(tf.constant(float(index), name="part"))
            )
            return [op.name for op in graph.get_operations()]

    assert names() == names()


def test_an_error_in_one_tower_ends_all_and_is_raised():
    with tf.Graph().as_default():
        lockstep = Lockstep(3)

        def build(index: int):
            if index == 1:
                raise ValueError("tower 1 is broken")
            return lockstep.cross_tower_mean(tf.constant(1.0))

        with pytest.raises(ValueError, match="tower 1 is broken"):
            lockstep.run(build)


def test_each_tower_keeps_its_own_device():
    with tf.Graph().as_default():
        lockstep = Lockstep(2)

        def build(index: int):
            with tf.device(f"/cpu:{index}"):
                lockstep.cross_tower_mean(tf.constant(1.0))
                return tf.constant(2.0).device

        assert lockstep.run(build) == ["/device:CPU:0", "/device:CPU:1"]
