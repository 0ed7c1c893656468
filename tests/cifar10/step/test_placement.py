import pytest
import tensorflow.compat.v1 as tf

from cifar10.step.placement import VariablePlacer


def test_each_variable_goes_where_the_fewest_bytes_are():
    with tf.Graph().as_default():
        placer = VariablePlacer(["/cpu:0", "/cpu:1"], default="/cpu:7")
        with tf.device(placer):
            variables = [
                tf.get_variable(name, [size], use_resource=True)
                for name, size in (("a", 100), ("b", 30), ("c", 30), ("d", 30), ("e", 30))
            ]
            other = tf.constant(1.0)
    devices = [variable.device for variable in variables]
    assert devices == ["/cpu:0"] + ["/cpu:1"] * 4
    assert placer.bytes_by_device == {"/cpu:0": 400, "/cpu:1": 480}
    assert other.device == "/cpu:7"


def test_a_placer_needs_a_device():
    with pytest.raises(ValueError, match="needs at least one device"):
        VariablePlacer([], default="")
