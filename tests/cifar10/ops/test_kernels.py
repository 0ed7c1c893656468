"""Convolutions in C++ against TensorFlow's in float64, and where they are used."""

import ctypes
import dataclasses
import itertools
import pathlib
from typing import Any, Optional

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from cifar10 import kernels
from cifar10.config.train_config import TrainConfig
from cifar10.ops import operations
from cifar10.ops.operations import CUSTOM_OPS, CUSTOM_OPS_BF16_DOTS, TENSORFLOW
from cifar10.step import model_fn
from cifar10.step.params import ModelParams
from tests.cifar10.forks import Forks
from tests.cifar10.steps import make_plan

SETTINGS = {"strides": [1, 1, 1, 1], "padding": "SAME", "data_format": "NHWC"}
ROUNDING = 2e-3  # root mean square error of random numbers rounded to bfloat16: 1.7e-3


@pytest.fixture
def compiled(compiled_kernels: None) -> Any:
    """The library."""
    return kernels.load()


def numbers(dtype: Any, *shape: int) -> Any:
    """Random numbers of a type, as float32."""
    found = np.random.default_rng(5).normal(size=shape).astype(np.float32)
    return np.float32(np.asarray(found, dtype.as_numpy_dtype))


def outputs_and_gradients(
    algorithm: str, x: Any, kernel: Any, dtype: Any, early: Optional[bool] = None
) -> Any:
    """Outputs, and gradients for input and filters of a loss that counts each of them anew."""
    with tf.Graph().as_default() as graph, tf.Session() as session:
        images, filters = (tf.cast(tf.constant(value), dtype) for value in (x, kernel))
        trains = None if early is None else tf.constant(early)
        chosen = operations.choose(images, filters, SETTINGS, algorithm)
        y = operations.convolve(chosen, images, filters, SETTINGS, trains)
        factors = np.random.default_rng(6).normal(size=y.shape).astype(np.float32)
        found = tf.gradients(y, [images, filters], tf.cast(tf.constant(factors), dtype))
        ops = {op.type for op in graph.get_operations()}
        assert ("Cifar10Conv3x3" in ops) == (algorithm != TENSORFLOW) != ("Conv2D" in ops)
        return session.run([tf.cast(value, tf.float32) for value in (y, *found)])


def differs(found: Any, expected: Any) -> float:
    """The error's size, by that of what is expected (root mean squares)."""
    return float(np.sqrt(np.mean((found - expected) ** 2) / np.mean(expected**2)))


# Images, filters, and the error with pairs where the CPU has them: 0.01 with tiles of 3, more with
# tiles of 4; 0: they are not rounded more; None: as another row.
SHAPES = [
    ((3, 32, 32, 16), 16, 0.016),
    ((7, 8, 8, 64), 64, 0.016),
    # Odd numbers of tiles, and of blocks of 16 positions or filters; tiles beside the image.
    ((1, 4, 4, 32), 48, 0.02),
    ((2, 4, 3, 16), 48, None),
    ((3, 4, 36, 32), 64, 0.016),
    # Tiles of 5.
    ((2, 15, 15, 64), 256, 0.016),
    # Channels that are no multiple of 16, or of 32, with and without others between them.
    ((2, 31, 31, 24), 64, 0.016),
    ((3, 8, 1, 40), 16, None),
    ((1, 9, 3, 24), 64, 0.01),
    # Images that are a single tile, of one group and of several, of whole panels and others.
    ((1, 1, 2, 16), 16, None),
    ((4, 3, 3, 64), 48, 0.01),
    ((3, 6, 6, 32), 64, 0.01),
    ((3, 7, 7, 256), 256, 0.016),
    ((257, 7, 1, 16), 32, None),
    # So many filters of small images.
    ((2, 7, 7, 256), 272, 0),
    ((2, 3, 3, 256), 272, 0),
]


@pytest.mark.parametrize(("images", "filters", "pairs"), SHAPES, ids=str)
def test_outputs_and_gradients_are_tensorflows(compiled, monkeypatch, images, filters, pairs):
    monkeypatch.setattr(operations, "_MOST_COVERED", 16.0)
    has_own_gradient = images[3] % kernels.CHANNELS == 0  # Else that of images is TensorFlow's.

    def errors(algorithm: str, dtype: Any) -> list[float]:
        x, kernel = numbers(dtype, *images), numbers(dtype, 3, 3, images[3], filters)
        exact = outputs_and_gradients(TENSORFLOW, x, kernel, tf.float64)
        found = outputs_and_gradients(algorithm, x, kernel, dtype)
        assert [tensor.shape for tensor in found] == [tensor.shape for tensor in exact]
        y, of_x, of_kernel = map(differs, found, exact)
        return [y, of_x if has_own_gradient else y, of_kernel]

    # Pairs are only of bfloat16.
    for algorithm in (CUSTOM_OPS, CUSTOM_OPS_BF16_DOTS):
        assert max(errors(algorithm, tf.float32)) < 1e-5
    # Only what is stored is rounded; the upstream gradient was, too.
    y, *gradients = errors(CUSTOM_OPS, tf.bfloat16)
    assert y < ROUNDING
    assert max(gradients) < 1.5 * ROUNDING
    if pairs is None:
        return
    y, of_x, of_kernel = errors(CUSTOM_OPS_BF16_DOTS, tf.bfloat16)
    if not pairs or kernels.instructions() not in (kernels.BF16_DOTS, kernels.MATRICES):
        assert max(y, of_x, of_kernel) < 1.5 * ROUNDING
        return
    # Evaluated numbers are rounded before they are multiplied.
    assert pairs / 2 < y < pairs
    assert pairs / 2 < of_x < pairs + 0.001
    assert of_kernel < pairs + 0.001
    if not kernels.is_one_tile(*images[1:3]):
        assert pairs / 2 < of_kernel


@pytest.mark.parametrize("side", [7, 8])
@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize(
    ("dtype", "algorithm"),
    [(tf.float32, CUSTOM_OPS), (tf.bfloat16, CUSTOM_OPS), (tf.bfloat16, CUSTOM_OPS_BF16_DOTS)],
)
def test_what_is_not_a_number_stays_none(compiled, side, value, dtype, algorithm):
    x, kernel = numbers(tf.float32, 2, side, side, 16), numbers(tf.float32, 3, 3, 16, 16)
    x[1, 3, 3, 5] = value
    y, _, of_kernel = outputs_and_gradients(algorithm, x, kernel, dtype)
    assert not np.isfinite(y[1, 2:5, 2:5]).any()
    assert np.isfinite(y[0]).all()
    assert not np.isfinite(of_kernel[:, :, 5]).any()


_THREADS = """
import os, sys
os.environ["CIFAR10_KERNELS_ISA"] = sys.argv[3]
import numpy as np
import tensorflow.compat.v1 as tf
from cifar10 import kernels
ops, random = kernels.load(), np.random.default_rng(0)
w = random.normal(size=(3, 3, 32, 32)).astype(np.float32)
config = tf.ConfigProto(intra_op_parallelism_threads=int(sys.argv[1]))
with tf.Graph().as_default(), tf.Session(config=config) as session:
    found = []
    for shape in ((6, 16, 15, 32), (150, 7, 7, 32)):
        x, y = (random.normal(size=shape).astype(np.float32) for _ in range(2))
        found += [
            ops.cifar10_conv3x3_backprop_filter(x, y),
            ops.cifar10_conv3x3(x, w),
            ops.cifar10_conv3x3_norm_relu(x, w, *random.uniform(1, 2, (4, 32)), [y], epsilon=1e-3),
        ]
        x, y, v = (tf.cast(tensor, tf.bfloat16) for tensor in (x, y, w))
        pairs = [
            ops.cifar10_conv3x3_backprop_filter(x, y, bf16_dots=True),
            ops.cifar10_conv3x3(x, v, transposes=True, bf16_dots=True),
            ops.cifar10_conv3x3_backprop_filter(x, y),
            ops.cifar10_conv3x3(x, v, transposes=True),
        ]
        found += [tf.cast(tensor, tf.float32) for tensor in pairs]
    np.savez(sys.argv[2], *session.run(found))
"""


def outputs_of_a_process(forks: Forks, path: pathlib.Path, threads: int, isa: str = ""):
    """Outputs and gradients for the filters that a process of its own computes."""
    done = forks.run_code(_THREADS, threads, path, isa)
    assert done.returncode == 0, done.stderr
    return np.load(path)


@pytest.mark.system
@pytest.mark.parametrize(("threads", "isa"), [(4, ""), (1, "avx2")])
def test_threads_and_instruction_sets_change_nothing_but_rounding(
    compiled, tmp_path, forks, threads, isa
):
    of_one = outputs_of_a_process(forks, tmp_path / "one.npz", 1)
    found = outputs_of_a_process(forks, tmp_path / "found.npz", threads, isa)
    assert set(found) == {f"arr_{index}" for index in range(14)}
    in_bfloat16 = {f"arr_{index}" for index in (3, 4, 5, 6, 10, 11, 12, 13)}
    for name in found:
        assert differs(found[name], of_one[name]) < (0.02 if name in in_bfloat16 else 1e-5)
    if not isa:
        # Sums over images are split between threads, but not where an image is a single tile, whose
        # sums are split with matrices alone.
        split = {"arr_0", "arr_3", "arr_5"}
        if kernels.instructions() == kernels.MATRICES:
            split.add("arr_12")
        for name in found.keys() - split:
            np.testing.assert_array_equal(found[name], of_one[name])


@pytest.mark.parametrize(
    ("op", "images", "others", "words"),
    [
        ("", (1, 0, 8, 16), (3, 3, 16, 16), "Images are not empty"),
        ("", (1, 8, 8, 20), (3, 3, 20, 16), "multiples of 8"),
        ("", (1, 8, 8, 8), (3, 3, 8, 16), "from 16 on"),
        ("", (1, 7, 7, 24), (3, 3, 24, 16), "and of 16 for images of a single tile"),
        ("", (1, 8, 8, 16), (3, 3, 16, 40), "filters come in multiples of 16"),
        ("", (1, 8, 8, 16), (3, 3, 32, 16), "not [3,3,16,16]"),
        ("", (1, 8, 8, 16), (16, 16), "rank 4"),
        ("_backprop_filter", (2, 8, 8, 16), (2, 4, 8, 16), "not [2,8,8,16]"),
    ],
    ids=str,
)
def test_what_it_cannot_compute_is_refused(compiled, op, images, others, words):
    with tf.Graph().as_default(), tf.Session() as session:
        # Shapes that only the run knows.
        given = [tf.placeholder_with_default(tf.zeros(s), None) for s in (images, others)]
        with pytest.raises(tf.errors.InvalidArgumentError) as caught:
            session.run(getattr(compiled, f"cifar10_conv3x3{op}")(*given))
    assert words in str(caught.value)


@pytest.mark.parametrize("side", [7, 8])
@pytest.mark.parametrize("dtype", [tf.float32, tf.bfloat16])
def test_no_images_have_no_outputs(compiled, side, dtype):
    with tf.Graph().as_default(), tf.Session() as session:
        x, kernel = tf.zeros([0, side, side, 16], dtype), tf.ones([3, 3, 16, 32], dtype)
        upstream = tf.zeros([0, side, side, 32], dtype)
        of_filters = compiled.cifar10_conv3x3_backprop_filter(x, upstream)
        outputs, gradient = session.run([compiled.cifar10_conv3x3(x, kernel), of_filters])
    assert outputs.shape == (0, side, side, 32)
    np.testing.assert_array_equal(gradient, np.zeros([3, 3, 16, 32]))


def test_python_and_the_library_agree_on_sizes(compiled):
    asked = ctypes.CDLL(str(kernels.path()))
    asked.cifar10_is_one_tile.restype = ctypes.c_bool
    asked.cifar10_positions.restype = ctypes.c_int64
    assert asked.cifar10_channels() == kernels.CHANNELS
    assert asked.cifar10_inputs() == kernels.INPUTS
    for size in itertools.product(range(1, 41), repeat=2):
        words = [ctypes.c_int64(length) for length in size]
        assert asked.cifar10_is_one_tile(*words) == kernels.is_one_tile(*size), size
        assert asked.cifar10_positions(*words) == kernels.positions(*size), size


# Runs an op with little memory left: its name, then the shapes of its variables.
_WITHOUT_MEMORY = """
import resource, sys
import tensorflow.compat.v1 as tf
from cifar10 import kernels
from cifar10 import tf_internals

tf.disable_eager_execution()
op, settings, small, large = eval(sys.argv[1])
ops = kernels.load()
fetches = []
for shapes in (small, large):
    variables = [tf.Variable(tf.ones(shape)) for shape in shapes]
    fetches.append(getattr(ops, op)(*variables, **settings))
with tf.Session() as session:
    session.run(tf.global_variables_initializer())
    session.run(fetches[0])  # Threads and their memory are there from now on.
    used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
    limits = used + (60 << 20), resource.getrlimit(resource.RLIMIT_AS)[1]
    resource.setrlimit(resource.RLIMIT_AS, limits)
    try:
        session.run(fetches[1])
    except tf.errors.ResourceExhaustedError as error:
        print(tf_internals.reason(error.message))
    session.run(fetches[0])
print("it goes on")
"""


@pytest.mark.parametrize(
    ("op", "settings", "small", "large"),
    [
        # Workspaces of 102 MB: 25 numbers for each pair of channels.
        (
            *("conv3x3", {"transposes": True}),
            *([(1, 3, 3, 16), (3, 3, 16, 16)], [(9, 3, 3, 960), (3, 3, 960, 960)]),
        ),
        # Sums of 131 MB: two for each number, since a row is as long as a block.
        (
            *("norm_relu", {"epsilon": 1e-5, "shortcut": []}),
            *([(1, 1, 1, 16), (16,), (16,)], [(1, 1, 1000, 16384), (16384,), (16384,)]),
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_memory_that_runs_out_is_an_error_as_of_tensorflows_ops(
    compiled, forks, op, settings, small, large
):
    done = forks.run_code(_WITHOUT_MEMORY, repr((f"cifar10_{op}", settings, small, large)))
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    name = op.title().replace("_", "").replace("X", "x")
    assert lines == [f"OOM when allocating what Cifar10{name} works with", "it goes on"]


@pytest.mark.parametrize("early", [True, False])
@pytest.mark.parametrize("algorithm", [CUSTOM_OPS, TENSORFLOW])
def test_after_the_first_epochs_the_input_has_no_gradient(compiled, early, algorithm):
    x, kernel = numbers(tf.float32, 2, 8, 8, 16), numbers(tf.float32, 3, 3, 16, 32)
    _, of_x, of_kernel = outputs_and_gradients(algorithm, x, kernel, tf.float32)
    _, found_of_x, found = outputs_and_gradients(algorithm, x, kernel, tf.float32, early)
    np.testing.assert_array_equal(found_of_x, of_x if early else np.zeros_like(x))
    np.testing.assert_array_equal(found, of_kernel)


@pytest.mark.parametrize(
    ("shape", "kernel", "changed", "fits"),
    [
        # Few channels, or small images.
        ((8, 8, 8, 64), (3, 3, 64, 64), {}, True),
        ((8, 15, 15, 256), (3, 3, 256, 64), {}, True),
        ((8, 31, 31, 24), (3, 3, 24, 64), {}, True),
        ((8, 7, 7, 256), (3, 3, 256, 256), {}, True),
        ((8, 8, 8, 20), (3, 3, 20, 64), {}, False),
        ((8, 8, 8, 8), (3, 3, 8, 64), {}, False),
        ((8, 7, 7, 24), (3, 3, 24, 64), {}, False),
        ((8, 8, 8, 64), (3, 3, 64, 24), {}, False),
        ((8, 8, 8, 384), (3, 3, 384, 144), {}, False),
        # Tiles that cover too much beside the image.
        ((8, 13, 13, 64), (3, 3, 64, 64), {}, False),
        ((8, 8, 8, 64), (1, 1, 64, 64), {}, False),
        ((8, 8, 8, 64), (3, 3, 64, 64), {"strides": [1, 2, 2, 1]}, False),
        ((8, 8, 8, 64), (3, 3, 64, 64), {"padding": "VALID"}, False),
        ((8, 64, 8, 8), (3, 3, 64, 64), {"data_format": "NCHW"}, False),
        ((8, None, 8, 64), (3, 3, 64, 64), {}, False),
    ],
    ids=str,
)
def test_what_does_not_fit_is_left_to_tensorflow(shape, kernel, changed, fits):
    settings = {**SETTINGS, **changed}
    with tf.Graph().as_default():
        x, weights = tf.placeholder(tf.float32, shape), tf.zeros(kernel)
        for wanted in (CUSTOM_OPS, CUSTOM_OPS_BF16_DOTS):
            found = operations.choose(x, weights, settings, wanted)
            assert found == (wanted if fits else TENSORFLOW)
        assert operations.choose(x, weights, settings, TENSORFLOW) == TENSORFLOW


# Two towers: the first layer of 3 channels and two of stride 2 are TensorFlow's, four are ours.
@pytest.mark.parametrize(
    ("mode", "pairs", "found", "fused"),
    [
        ("train", True, [True] * (2 * 4 * 3), 0),
        ("train", False, [False] * (2 * 4 * 3), 0),
        ("eval", True, [], 2 * 4),
    ],
)
def test_training_and_evaluation_take_them_and_training_pairs_if_the_plan_says_so(
    compiled, mode, pairs, found, fused
):
    plan = dataclasses.replace(
        make_plan(2),
        kernels=CUSTOM_OPS_BF16_DOTS if pairs else CUSTOM_OPS,
        compute_dtype=tf.bfloat16,
    )
    with tf.Graph().as_default() as graph:
        tf.train.create_global_step()
        images, labels = tf.zeros([4, 32, 32, 3], tf.uint8), tf.zeros([4], tf.int64)
        model_fn.model_fn(images, labels, mode, ModelParams(TrainConfig(num_layers=8), plan))
        ops = graph.get_operations()
    ours = ("Cifar10Conv3x3", "Cifar10Conv3x3BackpropFilter")
    assert [op.get_attr("bf16_dots") for op in ops if op.type in ours] == found
    types = [op.type for op in ops]
    assert (types.count("Cifar10Conv3x3NormRelu"), types.count("Conv2D")) == (fused, 2 * 3)
