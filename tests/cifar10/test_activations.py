"""GELU: the published function, its slope, the same whether XLA compiles it or not."""

import math
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from cifar10.activations import compiles, gelu
from tests.cifar10 import program
from tests.cifar10.steps import make_plan

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
    assert not compiles(make_plan(1))
    said = "XLA does not compile here: activations take one op after the other\n"
    assert capsys.readouterr().out == said


def test_the_first_compilation_is_not_announced():
    # In a process of its own, since it is announced once in a process.
    code = (
        "import os, sys; os.environ['TF_CPP_MIN_LOG_LEVEL'] = '3'\n"
        "import tensorflow.compat.v1 as tf\n"
        "from cifar10.activations import compiles, gelu\n"
        "from tests.cifar10.steps import make_plan\n"
        "assert compiles(make_plan(1))\n"
        "with tf.Graph().as_default(), tf.Session() as session:\n"
        "    x = tf.placeholder(tf.float32, [2])\n"
        "    session.run(gelu(x, fuses=True), {x: [1.0, 2.0]})\n"
        "print('still there', file=sys.stderr)"
    )
    command = [sys.executable, "-W", "ignore", "-c", code]
    done = subprocess.run(command, cwd=program.ROOT, capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("", "still there\n")
