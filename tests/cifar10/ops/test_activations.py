"""GELU: the published function, its slope, the same whether XLA compiles it or not; ReLU."""

import math
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from cifar10.ops.activations import compiles, gelu, relu
from tests.cifar10 import program

VALUES = np.linspace(-6, 6, 241).astype(np.float32)


def run(values: np.ndarray, fuses: bool, dtype: tf.DType = tf.float32) -> tuple[np.ndarray, ...]:
    """The function and, for an upstream gradient of 3, its gradient."""
    with tf.Graph().as_default(), tf.Session() as session:
        x = tf.constant(values, dtype)
        y = gelu(x, fuses)
        (gradient,) = tf.gradients(y, x, tf.constant(3.0, dtype, y.shape))
        assert (y.dtype, gradient.dtype) == (dtype, dtype)
        return tuple(session.run([tf.cast(y, tf.float32), tf.cast(gradient, tf.float32)]))


@pytest.mark.parametrize("fuses", [False, True], ids=["plain", "compiled"])
def test_it_is_the_tanh_form_of_gelu(fuses):
    exact = np.array([0.5 * x * (1 + math.erf(x / math.sqrt(2))) for x in VALUES])
    tanh = 0.5 * VALUES * (1 + np.tanh(math.sqrt(2 / math.pi) * (VALUES + 0.044715 * VALUES**3)))
    found, _ = run(VALUES, fuses)
    np.testing.assert_allclose(found, tanh, atol=1e-6)
    np.testing.assert_allclose(found, exact, atol=5e-4)


@pytest.mark.parametrize("fuses", [False, True], ids=["plain", "compiled"])
def test_its_gradient_is_the_slope(fuses):
    step = np.float32(1e-2)
    above, below = (run(VALUES + sign * step, fuses)[0] for sign in (1, -1))
    _, gradient = run(VALUES, fuses)
    np.testing.assert_allclose(gradient, 3 * (above - below) / (2 * step), atol=1e-3)


def test_layers_of_all_shapes_share_what_was_traced_once():
    with tf.Graph().as_default() as graph:
        inputs = [tf.zeros(shape) for shape in ([2, 3], [5, 7, 7, 4])]
        outputs = [gelu(x, fuses=True) for x in inputs]
        gradients = tf.gradients(outputs, inputs)
        for x, y, gradient in zip(inputs, outputs, gradients):
            assert x.shape == y.shape == gradient.shape
        calls = [op for op in graph.get_operations() if "PartitionedCall" in op.type]
    assert len(calls) == 4
    assert len({op.get_attr("f").name for op in calls}) == 2


@pytest.mark.parametrize("fuses", [False, True], ids=["plain", "compiled"])
def test_bfloat16_stays_bfloat16_and_is_computed_in_float32(fuses):
    exact, slope = run(VALUES, fuses)
    found, gradient = run(VALUES, fuses, tf.bfloat16)
    # An input is rounded by 2^-9 of itself, and so is the output.
    np.testing.assert_allclose(found, exact, atol=0.02, rtol=2**-7)
    np.testing.assert_allclose(gradient, slope, atol=0.05)


def test_where_xla_does_not_compile_activations_go_without(monkeypatch, capsys):
    def fail(*_: Any) -> None:
        raise tf.errors.InternalError(None, None, "libdevice not found at ./libdevice.10.bc")

    monkeypatch.setattr(tf.Session, "run", fail)
    assert not compiles("/cpu:0", tf.ConfigProto())
    said = "XLA does not compile here: activations take one op after the other\n"
    assert capsys.readouterr().out == said


def test_the_first_compilation_is_not_announced():
    # In a process of its own, since it is announced once in a process.
    code = (
        "import os, sys; os.environ['TF_CPP_MIN_LOG_LEVEL'] = '3'\n"
        "import tensorflow.compat.v1 as tf\n"
        "from cifar10.ops.activations import compiles, gelu\n"
        "assert compiles('/cpu:0', tf.ConfigProto())\n"
        "with tf.Graph().as_default(), tf.Session() as session:\n"
        "    x = tf.placeholder(tf.float32, [2])\n"
        "    session.run(gelu(x, fuses=True), {x: [1.0, 2.0]})\n"
        "print('still there', file=sys.stderr)"
    )
    command = [sys.executable, "-W", "ignore", "-c", code]
    done = subprocess.run(command, cwd=program.ROOT, capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("", "still there\n")


SPECIAL = [0.0, -0.0, math.inf, -math.inf, 2e-38, -2e-38, 3e38, -3e38]


def test_relus_gradient_by_integers_is_tensorflows():
    random = np.random.default_rng(1)
    values = np.array([*SPECIAL, *random.normal(size=92)], np.float32)
    upstream = random.normal(size=values.shape)

    def run(function: Callable[[Any], Any]) -> tuple[list[Any], set[str]]:
        with tf.Graph().as_default() as graph, tf.Session() as session:
            x = tf.cast(tf.placeholder_with_default(values, values.shape), tf.bfloat16)
            y = function(x)
            (gradient,) = tf.gradients(y, x, tf.constant(upstream, tf.bfloat16))
            found = session.run([tf.cast(one, tf.float32) for one in (y, gradient)])
            return found, {op.type for op in graph.get_operations()}

    expected, _ = run(tf.nn.relu)
    found, types = run(relu)
    # TensorFlow fuses a normalisation with an op of the first name.
    assert ("Relu" in types, "ReluGrad" in types) == (True, False)
    np.testing.assert_array_equal(found, expected)


def test_relu_does_not_hide_that_training_has_diverged():
    with tf.Graph().as_default(), tf.Session() as session:
        nan = np.array([math.nan, -math.nan], np.float32)
        x = tf.cast(tf.placeholder_with_default(nan, [2]), tf.bfloat16)
        assert np.isnan(session.run(tf.cast(relu(x), tf.float32))).all()


def test_relus_gradient_never_writes_over_what_it_reads():
    def memory(function: Callable[[Any], Any]) -> dict[str, int]:
        """Where each op has put its output, by the last part of its name."""
        with tf.Graph().as_default(), tf.Session() as session:
            x = tf.placeholder(tf.bfloat16, [1000])
            y = function(x)
            (gradient,) = tf.gradients(y, x, tf.negative(x, "upstream"))
            metadata, options = tf.RunMetadata(), tf.RunOptions(trace_level=3)
            half = np.full([1000], 0.5, tf.bfloat16.as_numpy_dtype)
            session.run([y.op, gradient.op], {x: half}, options, metadata)
        return {
            node.node_name.rpartition("/")[2]: output.tensor_description.allocation_description.ptr
            for device in metadata.step_stats.dev_stats
            for node in device.node_stats
            for output in node.output
        }

    places = memory(relu)
    assert places["mul"] not in (places["upstream"], places["ClipByValue"])
    places = memory(tf.nn.relu)  # which does, where nobody else needs it
    assert places["ReluGrad"] == places["upstream"]
