"""Convolutions in C++: what they compute, when they can be had, and how they are compiled."""

import ctypes
import dataclasses
import itertools
import os
import pathlib
import shlex
import shutil
import subprocess
import sys
import tempfile
from typing import Any, Optional

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from cifar10.config.train_config import TrainConfig
from cifar10.errors import ConfigError
from cifar10.ops import convolution
from cifar10.ops.kernels import build, library
from cifar10.step import model_fn
from cifar10.step.devices import plan_devices
from cifar10.step.params import ModelParams
from tests import failing_disk
from tests.cifar10 import steps
from tests.cifar10.forks import Forks
from tests.cifar10.steps import make_plan

SETTINGS = {"strides": [1, 1, 1, 1], "padding": "SAME", "data_format": "NHWC"}
RANDOM = np.random.default_rng(7)
ROUNDING = 2e-3  # root mean square error of random numbers rounded to bfloat16: 1.7e-3
COMPILED = library.path()
ALL_FLAGS = {"abm", "avx2", "bmi1", "bmi2", "f16c", "fma", "movbe"}


@pytest.fixture
def compiled(compiled_kernels: None) -> Any:
    """The library."""
    return library.load()


@pytest.fixture
def pairs(compiled: Any) -> None:
    """Skips the test where the library does not multiply pairs of bfloat16s."""
    if not library.multiplies_pairs():
        pytest.skip(f"needs avx512_bf16; the library uses {library.instructions()}")


@pytest.fixture
def elsewhere(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    """The library's path, where nothing is yet, on a machine that can have it."""
    path = tmp_path / "built" / "kernels.so"
    monkeypatch.setattr(library, "why_impossible", lambda flags: None)
    monkeypatch.setattr(library, "path", lambda: path)
    return path


def numbers(*shape: int) -> Any:
    return RANDOM.normal(size=shape).astype(np.float32)


def bfloat16s(*shape: int) -> Any:
    """The same numbers for each shape: float32 that bfloat16 holds, too."""
    found = np.random.default_rng(5).normal(size=shape)
    return np.float32(np.asarray(found, tf.bfloat16.as_numpy_dtype))


def outputs_and_gradients(
    own: bool,
    x: Any,
    kernel: Any,
    dtype: Any,
    early: Optional[bool] = None,
    pairs: bool = False,
) -> Any:
    """Outputs, and gradients for input and filters of a loss that counts each of them anew."""
    with tf.Graph().as_default() as graph, tf.Session() as session:
        images, filters = (tf.cast(tf.constant(value), dtype) for value in (x, kernel))
        trains = None if early is None else tf.constant(early)
        algorithms = convolution.ConvAlgorithms(own=own, pairs=pairs)
        algorithm = convolution.choose(images, filters, SETTINGS, algorithms)
        y = convolution.convolve(algorithm, images, filters, SETTINGS, trains)
        factors = np.random.default_rng(6).normal(size=y.shape).astype(np.float32)
        found = tf.gradients(y, [images, filters], tf.cast(tf.constant(factors), dtype))
        ops = {op.type for op in graph.get_operations()}
        assert ("Cifar10Conv3x3" in ops) == own
        assert ("Conv2D" in ops) != own
        return session.run([tf.cast(value, tf.float32) for value in (y, *found)])


def differs(found: Any, expected: Any) -> float:
    """The error's size, by that of what is expected (root mean squares)."""
    return float(np.sqrt(np.mean((found - expected) ** 2) / np.mean(expected**2)))


@pytest.mark.parametrize(
    ("images", "filters"),
    [
        ((5, 32, 32, 16), 16),
        ((3, 16, 16, 32), 32),
        ((7, 8, 8, 64), 64),
        ((1, 4, 4, 16), 48),
        ((2, 12, 20, 48), 16),
        ((3, 4, 36, 32), 64),
        ((2, 15, 15, 64), 256),
        ((3, 31, 14, 32), 16),
        ((2, 5, 17, 16), 32),
        # Tiles of 5.
        ((2, 15, 15, 16), 16),
        ((2, 10, 14, 48), 80),
        ((1, 15, 5, 24), 64),
        # Channels that are no multiple of 16.
        ((2, 31, 31, 24), 64),
        ((3, 8, 1, 40), 16),
        # Images that are a single tile, of one group and of several, of whole panels and others.
        ((1, 1, 2, 16), 16),
        ((1, 3, 3, 256), 256),
        ((5, 3, 2, 48), 32),
        ((1, 7, 7, 16), 16),
        ((3, 7, 7, 256), 256),
        ((131, 7, 7, 32), 48),
        ((2, 5, 6, 64), 80),
        ((257, 7, 1, 16), 32),
    ],
)
def test_outputs_and_gradients_are_tensorflows(compiled, monkeypatch, images, filters):
    monkeypatch.setattr(convolution, "_MOST_COVERED", 16.0)
    x, kernel = numbers(*images), numbers(3, 3, images[3], filters)
    exact = outputs_and_gradients(False, x, kernel, tf.float64)
    for found, expected in zip(outputs_and_gradients(True, x, kernel, tf.float32), exact):
        assert found.shape == expected.shape
        assert differs(found, expected) < 1e-5


@pytest.mark.parametrize(("side", "error"), [(3, 1e-4), (7, 1e-3), (8, 1e-4)])
def test_bfloat16_is_rounded_once(compiled, side, error):
    shapes = (4, side, side, 32), (3, 3, 32, 16)
    x, kernel = (np.round(numbers(*shape) * 8) / 8 for shape in shapes)
    exact = outputs_and_gradients(False, x, kernel, tf.float32)
    y, of_x, of_kernel = outputs_and_gradients(True, x, kernel, tf.bfloat16)
    # Half a unit of the last of eight bits, and the float's own error.
    np.testing.assert_allclose(y, exact[0], rtol=2**-8, atol=error)
    # The upstream gradient was rounded, too.
    assert differs(of_x, exact[1]) < 2**-8
    assert differs(of_kernel, exact[2]) < 2**-8


@pytest.mark.parametrize(
    ("images", "filters"),
    [
        ((5, 32, 32, 16), 16),
        ((3, 16, 16, 32), 32),
        ((7, 8, 8, 64), 64),
        # An odd number of blocks of 16 positions, and of 16 filters.
        ((2, 4, 3, 16), 48),
        ((3, 4, 36, 32), 80),
        # Channels that are no multiple of 16, or of 32, with and without others between them.
        ((2, 31, 31, 24), 64),
        ((3, 8, 1, 40), 16),
        ((2, 10, 14, 48), 32),
        ((1, 19, 4, 72), 16),
        # Sums of several groups of images, the last of them with fewer.
        ((131, 7, 7, 32), 48),
        ((65, 3, 2, 256), 16),
        ((9, 15, 15, 64), 256),
        ((1, 1, 1, 16), 16),
    ],
)
def test_only_outputs_are_rounded_in_bfloat16(compiled, monkeypatch, images, filters):
    monkeypatch.setattr(convolution, "_MOST_COVERED", 16.0)
    x, kernel = bfloat16s(*images), bfloat16s(3, 3, images[3], filters)
    y, of_x, of_kernel = outputs_and_gradients(True, x, kernel, tf.bfloat16)
    exact = outputs_and_gradients(False, x, kernel, tf.float64)
    assert differs(y, exact[0]) < ROUNDING
    # The upstream gradient was rounded, too.
    if images[3] % library.CHANNELS == 0:  # Else it is TensorFlow's.
        assert differs(of_x, exact[1]) < 1.5 * ROUNDING
    assert differs(of_kernel, exact[2]) < 1.5 * ROUNDING


@pytest.mark.usefixtures("pairs")
@pytest.mark.parametrize(
    ("images", "filters", "most"),
    [
        # Tiles of 3: also where they cover more than the image, and an odd number.
        ((4, 3, 3, 64), 48, 0.01),
        ((7, 2, 3, 256), 256, 0.01),
        ((3, 6, 6, 32), 64, 0.01),
        ((1, 9, 3, 24), 64, 0.01),
        # Tiles of 4: also a single one, an odd number, channels in multiples of 8.
        ((3, 32, 32, 16), 16, 0.016),
        ((7, 8, 8, 64), 64, 0.016),
        ((1, 4, 4, 32), 48, 0.02),
        ((3, 4, 36, 32), 64, 0.016),
        ((2, 31, 31, 24), 64, 0.016),
        ((3, 7, 7, 256), 256, 0.016),
        ((2, 15, 15, 64), 256, 0.016),
        ((1, 19, 4, 24), 64, 0.016),
    ],
)
def test_pairs_are_rounded_before_they_are_multiplied(compiled, monkeypatch, images, filters, most):
    monkeypatch.setattr(convolution, "_MOST_COVERED", 16.0)
    x, kernel = bfloat16s(*images), bfloat16s(3, 3, images[3], filters)
    y, of_x, of_kernel = outputs_and_gradients(True, x, kernel, tf.bfloat16, pairs=True)
    exact = outputs_and_gradients(False, x, kernel, tf.float64)
    assert most / 2 < differs(y, exact[0]) < most
    # The upstream gradient was rounded, too.
    if images[3] % library.CHANNELS == 0:  # Else it is TensorFlow's.
        assert most / 2 < differs(of_x, exact[1]) < most + 0.001
    assert differs(of_kernel, exact[2]) < most + 0.001
    if not library.is_one_tile(*images[1:3]):
        assert most / 2 < differs(of_kernel, exact[2])


@pytest.mark.parametrize(("side", "filters"), [(7, 272), (3, 272)])
def test_many_filters_of_small_images_are_not_rounded(compiled, side, filters):
    x, kernel = bfloat16s(2, side, side, 256), bfloat16s(3, 3, 256, filters)
    found = outputs_and_gradients(True, x, kernel, tf.bfloat16, pairs=True)
    for one, expected in zip(found, outputs_and_gradients(False, x, kernel, tf.float64)):
        assert differs(one, expected) < 1.5 * ROUNDING
    if not library.multiplies_matrices():
        for one, expected in zip(found, outputs_and_gradients(True, x, kernel, tf.bfloat16)):
            np.testing.assert_array_equal(one, expected)


def test_pairs_are_only_of_bfloat16(compiled):
    x, kernel = numbers(2, 8, 8, 16), numbers(3, 3, 16, 16)
    for found, expected in zip(
        outputs_and_gradients(True, x, kernel, tf.float32, pairs=True),
        outputs_and_gradients(True, x, kernel, tf.float32),
    ):
        np.testing.assert_array_equal(found, expected)


_LIMITS = """
import os, sys
from cifar10.ops.kernels import library
library.load()
for variable, value in eval(sys.argv[1]):
    if os.fork():
        os.wait()
    else:  # The library looks once.
        os.environ[variable] = value
        print(library.instructions(), flush=True)
        os._exit(0)
"""


def test_variables_limit_the_instructions(compiled, root):
    most = {
        ("CIFAR10_KERNELS_ISA", ""): "amx",
        ("CIFAR10_KERNELS_ISA", "avx2"): "avx2",
        ("CIFAR10_KERNELS_ISA", "avx512"): "avx512",
        ("CIFAR10_KERNELS_ISA", "avx512_bf16"): "avx512_bf16",
        ("CIFAR10_KERNELS_ISA", "amx"): "amx",
        ("ONEDNN_MAX_CPU_ISA", "AVX2"): "avx2",
        ("DNNL_MAX_CPU_ISA", "SSE41"): "avx2",
        ("ONEDNN_MAX_CPU_ISA", "AVX512_CORE"): "avx512",
        ("ONEDNN_MAX_CPU_ISA", "avx512_core_vnni"): "avx512",
        ("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16"): "avx512_bf16",
        ("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_AMX"): "amx",
        ("ONEDNN_MAX_CPU_ISA", ""): "amx",
    }
    names = ("CIFAR10_KERNELS_ISA", "ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA")
    kept = {name: value for name, value in os.environ.items() if name not in names}
    words = [sys.executable, "-c", _LIMITS, repr([*most])]
    found = subprocess.run(
        words, env=kept, cwd=root, check=True, capture_output=True, text=True
    ).stdout.split()
    machines = library.LIMITS.index(found[0])  # what this machine has
    expected = [min(machines, library.LIMITS.index(one)) for one in most.values()]
    assert [library.LIMITS.index(one) for one in found] == expected


def test_another_limit_is_refused_in_one_line(monkeypatch, capsys):
    monkeypatch.setenv("CIFAR10_KERNELS_ISA", "avx3")
    line = "CIFAR10_KERNELS_ISA must be one of none, avx2, avx512, avx512_bf16, amx, got 'avx3'"
    with pytest.raises(ConfigError, match=line):
        plan_devices(TrainConfig(kernels="tensorflow"))
    assert build.main([]) == 2
    assert capsys.readouterr().err == f"error: {line}\n"


def test_with_no_instructions_they_are_left_out(monkeypatch, capsys):
    monkeypatch.setenv("CIFAR10_KERNELS_ISA", "none")
    assert library.why_not(ALL_FLAGS) == "CIFAR10_KERNELS_ISA is none"
    assert build.main(["--anew"]) == 2
    assert "cannot be had: CIFAR10_KERNELS_ISA is none\n" in capsys.readouterr().err


def test_a_cpu_that_multiplies_matrices_does_so(compiled):
    if not library.multiplies_matrices():
        pytest.skip(f"needs amx; the library uses {library.instructions()}")
    x, kernel = bfloat16s(2, 8, 8, 64), bfloat16s(3, 3, 64, 64)
    found = [
        outputs_and_gradients(True, x, kernel, tf.bfloat16, pairs=pairs)[0]
        for pairs in (False, True)
    ]
    exact = outputs_and_gradients(False, x, kernel, tf.float64)[0]
    assert 3 * differs(found[0], exact) < differs(found[1], exact)


@pytest.mark.parametrize("side", [7, 8])
@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize(
    ("dtype", "pairs"), [(tf.float32, False), (tf.bfloat16, False), (tf.bfloat16, True)]
)
def test_what_is_not_a_number_stays_none(compiled, side, value, dtype, pairs):
    x, kernel = numbers(2, side, side, 16), numbers(3, 3, 16, 16)
    x[1, 3, 3, 5] = value
    y, _, of_kernel = outputs_and_gradients(True, x, kernel, dtype, pairs=pairs)
    assert not np.isfinite(y[1, 2:5, 2:5]).any()
    assert np.isfinite(y[0]).all()
    assert not np.isfinite(of_kernel[:, :, 5]).any()


_THREADS = """
import os, sys
os.environ["CIFAR10_KERNELS_ISA"] = sys.argv[3]
import numpy as np
import tensorflow.compat.v1 as tf
from cifar10.ops.kernels import library
ops, random = library.load(), np.random.default_rng(0)
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
        x, y, v = (tf.cast(one, tf.bfloat16) for one in (x, y, w))
        pairs = [
            ops.cifar10_conv3x3_backprop_filter(x, y, pairs=True),
            ops.cifar10_conv3x3(x, v, transposes=True, pairs=True),
            ops.cifar10_conv3x3_backprop_filter(x, y),
            ops.cifar10_conv3x3(x, v, transposes=True),
        ]
        found += [tf.cast(one, tf.float32) for one in pairs]
    np.savez(sys.argv[2], *session.run(found))
"""


def outputs_of_a_process(forks: Forks, path: pathlib.Path, threads: int, isa: str = ""):
    """Outputs and gradients for the filters that a process of its own computes."""
    done = forks.run_code(_THREADS, threads, path, isa)
    assert done.returncode == 0, done.stderr
    return np.load(path)


@pytest.fixture(scope="module")
def of_one_thread(compiled_kernels: None, tmp_path_factory, forks: Forks):
    """Those of one thread, with any instructions that the machine has."""
    return outputs_of_a_process(forks, tmp_path_factory.mktemp("one") / "found.npz", 1)


@pytest.mark.system
@pytest.mark.parametrize(("threads", "isa"), [(4, ""), (1, "avx2")])
def test_threads_and_instruction_sets_change_nothing_but_rounding(
    of_one_thread, tmp_path, forks, threads, isa
):
    found = outputs_of_a_process(forks, tmp_path / "found.npz", threads, isa)
    assert set(found) == {f"arr_{index}" for index in range(14)}
    in_bfloat16 = {f"arr_{index}" for index in (3, 4, 5, 6, 10, 11, 12, 13)}
    for name in found:
        most = 0.02 if name in in_bfloat16 else 1e-5
        assert differs(found[name], of_one_thread[name]) < most
    if not isa:
        # Sums over images are split between threads, but not where an image is a single tile, whose
        # sums are split with matrices alone.
        split = {"arr_0", "arr_3", "arr_5"}
        if library.multiplies_matrices():
            split.add("arr_12")
        for name in found.keys() - split:
            np.testing.assert_array_equal(found[name], of_one_thread[name])


# The gradients for filters of 64, 128 and 256 tiles, and the MB by which one for many filters
# increases the process's memory.
_SUMS = """
import resource, sys
import numpy as np
import tensorflow.compat.v1 as tf
from cifar10.ops.kernels import library
tf.disable_eager_execution()
gradient, random = library.load().cifar10_conv3x3_backprop_filter, np.random.default_rng(0)
config = tf.ConfigProto(intra_op_parallelism_threads=int(sys.argv[1]))
with tf.Session(config=config) as session:
    some = [random.normal(size=(count, 8, 8, 32)).astype(np.float32) for count in (16, 32, 64)]
    found = session.run([gradient(images, images) for images in some])
    many = tf.Variable(tf.ones([256, 8, 8, 512]))
    session.run(many.initializer)
    op = gradient(many, many).op
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    session.run(op)
    memory = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    np.savez(sys.argv[2], *found, memory)
"""


@pytest.mark.system
def test_threads_have_sums_of_their_own_for_64_tiles_and_in_256_megabytes(
    compiled, forks, tmp_path
):
    found = {}
    for threads in (1, 2, 16):
        path = tmp_path / f"{threads}.npz"
        assert forks.run_code(_SUMS, threads, path).returncode == 0
        found[threads] = np.load(path)
    for threads in (2, 16):
        np.testing.assert_array_equal(found[threads]["arr_0"], found[1]["arr_0"])
    np.testing.assert_array_equal(found[16]["arr_1"], found[2]["arr_1"])
    assert (found[2]["arr_1"] != found[1]["arr_1"]).any()
    # Two and four sums.
    assert (found[16]["arr_2"] != found[2]["arr_2"]).any()
    for threads in (2, 16):
        assert 0 < differs(found[threads]["arr_2"], found[1]["arr_2"]) < 1e-5
    # Sums of 38 MB for each of up to six threads, the gradient of 9 MB, and what tiles need.
    assert found[16]["arr_3"] < 320


@pytest.mark.parametrize(
    ("images", "weights", "words"),
    [
        ((1, 0, 8, 16), (3, 3, 16, 16), "Images are not empty"),
        ((1, 8, 0, 16), (3, 3, 16, 16), "Images are not empty"),
        ((1, 8, 8, 20), (3, 3, 20, 16), "multiples of 8"),
        ((1, 8, 8, 8), (3, 3, 8, 16), "from 16 on"),
        ((1, 7, 7, 24), (3, 3, 24, 16), "and of 16 for images of a single tile"),
        ((1, 8, 8, 16), (3, 3, 16, 40), "filters come in multiples of 16"),
        ((1, 8, 8, 16), (3, 3, 16, 0), "filters come in multiples of 16"),
        ((1, 8, 8, 16), (5, 5, 16, 16), "not [3,3,16,16]"),
        ((1, 8, 8, 16), (3, 3, 32, 16), "not [3,3,16,16]"),
        ((8, 8, 16), (3, 3, 16, 16), "rank 4"),
        ((1, 8, 8, 16), (16, 16), "rank 4"),
    ],
)
def test_what_it_cannot_compute_is_refused(compiled, images, weights, words):
    with tf.Graph().as_default(), tf.Session() as session:
        # Shapes that only the run knows.
        x, kernel = (tf.placeholder_with_default(tf.zeros(s), None) for s in (images, weights))
        with pytest.raises(tf.errors.InvalidArgumentError) as caught:
            session.run(compiled.cifar10_conv3x3(x, kernel))
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


# Tensors without numbers that have more channels than a tensor with numbers could.
@pytest.mark.parametrize(
    ("op", "shapes"),
    [
        ("cifar10_conv3x3", [(0, 8, 8, 2**40), (3, 3, 0, 2**40)]),
        ("cifar10_conv3x3_backprop_filter", [(0, 8, 8, 2**40), (0, 8, 8, 2**40)]),
        ("cifar10_conv3x3_backprop_filter", [(2, 8, 8, 16), (0, 8, 8, 2**58)]),
    ],
)
def test_sizes_that_no_tensor_has_are_refused(compiled, forks, op, shapes):
    done = forks.run_code(_HUGE, repr((op, shapes)))
    assert done.returncode == 0, done.stderr
    assert done.stdout == "refused\n"


_HUGE = """
import sys
import tensorflow.compat.v1 as tf
from cifar10.ops.kernels import library
tf.disable_eager_execution()
op, shapes = eval(sys.argv[1])
with tf.Session() as session:
    # Shapes that only the run knows.
    zeros = [tf.placeholder_with_default(tf.zeros(shape), None) for shape in shapes]
    try:
        session.run(getattr(library.load(), op)(*zeros).op)
    except tf.errors.InvalidArgumentError:
        print("refused")
"""


def test_a_gradient_of_another_size_is_refused(compiled):
    with tf.Graph().as_default(), tf.Session() as session:
        op = compiled.cifar10_conv3x3_backprop_filter(
            tf.zeros([2, 8, 8, 16]), tf.zeros([2, 4, 8, 16])
        )
        with pytest.raises(tf.errors.InvalidArgumentError, match=r"not \[2,8,8,16\]"):
            session.run(op)


def test_python_and_the_library_agree_on_sizes(compiled):
    asked = ctypes.CDLL(str(library.path()))
    asked.cifar10_is_one_tile.restype = ctypes.c_bool
    asked.cifar10_positions.restype = ctypes.c_int64
    assert asked.cifar10_channels() == library.CHANNELS
    assert asked.cifar10_inputs() == library.INPUTS
    for size in itertools.product(range(1, 41), repeat=2):
        words = [ctypes.c_int64(length) for length in size]
        assert asked.cifar10_is_one_tile(*words) == library.is_one_tile(*size), size
        assert asked.cifar10_positions(*words) == library.positions(*size), size


# Runs an op with little memory left: its name, then the shapes of its variables.
_WITHOUT_MEMORY = """
import resource, sys
import tensorflow.compat.v1 as tf
from cifar10.ops.kernels import library
from cifar10.tf_internals import error_messages

tf.disable_eager_execution()
op, settings, small, large = eval(sys.argv[1])
ops = library.load()
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
        print(error_messages.reason(error.message))
    session.run(fetches[0])
print("it goes on")
"""
_NORM = {"epsilon": 1e-5}


@pytest.mark.parametrize(
    ("op", "name", "settings", "small", "large"),
    [
        # Workspaces of 102 MB: 25 numbers for each pair of channels.
        (
            "cifar10_conv3x3",
            "Cifar10Conv3x3",
            {"transposes": True},
            [(1, 3, 3, 16), (3, 3, 16, 16)],
            [(9, 3, 3, 960), (3, 3, 960, 960)],
        ),
        (
            "cifar10_conv3x3_backprop_filter",
            "Cifar10Conv3x3BackpropFilter",
            {},
            [(1, 3, 3, 16), (1, 3, 3, 16)],
            [(9, 3, 3, 960), (9, 3, 3, 960)],
        ),
        # Sums of 131 MB: two for each number, since a row is as long as a block.
        (
            "cifar10_norm_relu",
            "Cifar10NormRelu",
            {**_NORM, "shortcut": []},
            [(1, 1, 1, 16), (16,), (16,)],
            [(1, 1, 1000, 16384), (16384,), (16384,)],
        ),
        (
            "cifar10_norm_relu_grad",
            "Cifar10NormReluGrad",
            {**_NORM, "y": []},
            [(1, 1, 1, 16), *[(16,)] * 4, (1, 1, 1, 16)],
            [(1, 1, 1000, 16384), *[(16384,)] * 4, (1, 1, 1000, 16384)],
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_memory_that_runs_out_is_an_error_as_of_tensorflows_ops(
    compiled, forks, op, name, settings, small, large
):
    done = forks.run_code(_WITHOUT_MEMORY, repr((op, settings, small, large)))
    assert done.returncode == 0, done.stderr
    reason, rest = done.stdout.splitlines()
    assert reason == f"OOM when allocating what {name} works with"
    assert rest == "it goes on"


def test_shapes_are_known_before_it_runs(compiled):
    with tf.Graph().as_default():
        x = tf.placeholder(tf.float32, [None, 8, 8, 16])
        kernel = tf.zeros([3, 3, 16, 32])
        assert compiled.cifar10_conv3x3(x, kernel).shape.as_list() == [None, 8, 8, 32]
        y = tf.placeholder(tf.float32, [None, 8, 8, 32])
        back = compiled.cifar10_conv3x3(y, kernel, transposes=True)
        assert back.shape.as_list() == [None, 8, 8, 16]
        of_filters = compiled.cifar10_conv3x3_backprop_filter(x, y)
        assert of_filters.shape.as_list() == [3, 3, 16, 32]


@pytest.mark.parametrize("early", [True, False])
def test_after_the_first_epochs_the_input_has_no_gradient(compiled, early):
    x, kernel = numbers(2, 8, 8, 16), numbers(3, 3, 16, 32)
    _, of_x, of_kernel = outputs_and_gradients(True, x, kernel, tf.float32)
    _, found_of_x, found = outputs_and_gradients(True, x, kernel, tf.float32, early)
    np.testing.assert_array_equal(found_of_x, of_x if early else np.zeros_like(x))
    np.testing.assert_array_equal(found, of_kernel)


@pytest.mark.parametrize(
    ("shape", "filters"),
    [
        ((8, 8, 8, 64), 64),
        ((8, 15, 15, 64), 256),
        ((8, 15, 15, 256), 64),
        ((8, 15, 15, 128), 384),
        ((8, 31, 16, 16), 16),
        ((8, 31, 31, 24), 64),
        ((8, 14, 10, 64), 64),
        ((8, 7, 7, 256), 256),
        ((8, 3, 3, 512), 512),
    ],
)
def test_few_channels_or_small_images_fit(shape, filters):
    with tf.Graph().as_default():
        x, weights = tf.placeholder(tf.float32, shape), tf.zeros([3, 3, shape[3], filters])
        assert convolution.fits_kernels(x, weights, SETTINGS)


@pytest.mark.parametrize(
    ("shape", "kernel", "changed"),
    [
        ((8, 8, 8, 20), (3, 3, 20, 64), {}),
        ((8, 8, 8, 8), (3, 3, 8, 64), {}),
        ((8, 7, 7, 24), (3, 3, 24, 64), {}),
        ((8, 8, 8, 64), (3, 3, 64, 24), {}),
        ((8, 8, 8, 384), (3, 3, 384, 144), {}),
        ((8, 13, 13, 64), (3, 3, 64, 64), {}),
        ((8, 8, 8, 64), (1, 1, 64, 64), {}),
        ((8, 8, 8, 64), (3, 3, 64, 64), {"strides": [1, 2, 2, 1]}),
        ((8, 8, 8, 64), (3, 3, 64, 64), {"padding": "VALID"}),
        ((8, 64, 8, 8), (3, 3, 64, 64), {"data_format": "NCHW"}),
        ((8, None, 8, 64), (3, 3, 64, 64), {}),
    ],
)
def test_what_does_not_fit_is_left_to_others(shape, kernel, changed):
    with tf.Graph().as_default():
        x, weights = tf.placeholder(tf.float32, shape), tf.zeros(kernel)
        assert not convolution.fits_kernels(x, weights, {**SETTINGS, **changed})


def resnet_ops(mode: str, **settings: Any) -> list[Any]:
    """A ResNet-8's ops, in a plan that has our convolutions."""
    plan = dataclasses.replace(make_plan(2), own_kernels=True, **settings)
    params = ModelParams(TrainConfig(num_layers=8), plan)
    with tf.Graph().as_default() as graph:
        tf.train.create_global_step()
        images, labels = tf.zeros([4, 32, 32, 3], tf.uint8), tf.zeros([4], tf.int64)
        model_fn.model_fn(images, labels, mode, params)
        return graph.get_operations()


def test_training_takes_them_where_they_fit(compiled):
    ops = [op.type for op in resnet_ops("train")]
    # Two towers: the first layer of 3 channels and two of stride 2 are TensorFlow's, four are ours.
    assert ops.count("Conv2D") == ops.count("Conv2DBackpropFilter") == 2 * 3
    assert ops.count("Cifar10Conv3x3") == 2 * 4 * 2
    assert ops.count("Cifar10Conv3x3BackpropFilter") == 2 * 4


@pytest.mark.parametrize(
    ("mode", "pairs", "found"),
    [
        ("train", True, [True] * (2 * 4 * 3)),
        ("train", False, [False] * (2 * 4 * 3)),
        ("eval", True, [False] * (2 * 4)),
    ],
)
def test_only_training_multiplies_pairs_and_only_if_the_plan_says_so(compiled, mode, pairs, found):
    ours = ("Cifar10Conv3x3", "Cifar10Conv3x3BackpropFilter")
    ops = resnet_ops(mode, compute_dtype=tf.bfloat16, pairs=pairs)
    assert [op.get_attr("pairs") for op in ops if op.type in ours] == found


def test_training_follows_that_with_tensorflows_convolutions(compiled):
    projection = np.random.default_rng(3).normal(0, 0.4, (2, 2, 3, 24)).astype(np.float32)
    values = {"model/whitening/projection": projection}
    config = TrainConfig(
        model="fastnet", train_batch_size=32, schedule="constant", learning_rate=0.01
    )

    def train(own: bool) -> tuple[Any, list[float]]:
        """How the first of five steps moves the weights, and the losses of all."""
        plan = dataclasses.replace(make_plan(1), own_kernels=own)
        with steps.training(config, plan, values=values) as run:
            before = run.weights
            batches = steps.make_batches(5, 32)
            losses = [run.step(batch, [run.spec.loss])[0] for batch in batches[:1]]
            moved = run.weights - before
            return moved, losses + [run.step(one, [run.spec.loss])[0] for one in batches[1:]]

    (found, found_losses), (expected, expected_losses) = train(True), train(False)
    np.testing.assert_allclose(found_losses, expected_losses, rtol=1e-5)
    # In later steps, rounding may choose another maximum of a pooling, and the weights part.
    assert 0 < np.linalg.norm(found - expected) < 2e-4 * np.linalg.norm(expected)


def test_evaluation_takes_them_where_they_fit(compiled):
    ops = [op.type for op in resnet_ops("eval")]
    assert ops.count("Conv2D") == 2 * 3
    assert ops.count("Cifar10Conv3x3") == 2 * 4


def test_a_cpu_without_their_instructions_cannot_have_them(monkeypatch):
    monkeypatch.delenv("CIFAR10_KERNELS_ISA", raising=False)
    monkeypatch.setattr(library.sys, "platform", "linux")
    monkeypatch.setattr(library.platform, "machine", lambda: "x86_64")
    assert library.why_impossible(ALL_FLAGS) is None
    assert library.why_impossible(ALL_FLAGS - {"fma", "avx2"}) == "this CPU has no avx2, fma"


def test_another_machine_cannot_have_them(monkeypatch):
    monkeypatch.delenv("CIFAR10_KERNELS_ISA", raising=False)
    monkeypatch.setattr(library.sys, "platform", "darwin")
    monkeypatch.setattr(library.platform, "machine", lambda: "arm64")
    expected = "they are for Linux on x86-64, and this is darwin on arm64"
    assert library.why_impossible(ALL_FLAGS) == expected


def test_what_is_not_compiled_says_how(elsewhere):
    assert (
        library.why_not(ALL_FLAGS) == "they are not compiled (python -m cifar10.ops.kernels.build)"
    )


def test_a_damaged_library_says_how_to_mend_it(elsewhere, monkeypatch):
    monkeypatch.setattr(library, "load", library.load.__wrapped__)
    elsewhere.parent.mkdir()
    elsewhere.write_bytes(b"no library")
    reason = library.why_not(ALL_FLAGS)
    assert reason is not None
    assert str(elsewhere) in reason
    assert reason.endswith("(python -m cifar10.ops.kernels.build --anew)")


_WHY_NOT = """
import pathlib, sys
from cifar10.ops.kernels import library
library.why_impossible = lambda flags: None
library.path = lambda: pathlib.Path(sys.argv[1])
print(library.why_not(frozenset()))
"""


def why_not_in_a_process(forks: Forks, path: pathlib.Path) -> str:
    """What `why_not` says of a library at a path to a process of its own."""
    done = forks.run_code(_WHY_NOT, path)
    assert done.returncode == 0, done
    return done.stdout.strip()


# Nothing, a part of the header, and parts of what the header promises.
@pytest.mark.parametrize("share", [0.0, 5e-5, 1.7e-3, 0.65, "all but a byte"])
def test_a_library_that_was_cut_off_is_refused_and_compiled_anew(
    compiled, forks, elsewhere, monkeypatch, share
):
    content = COMPILED.read_bytes()
    size = len(content) - 1 if isinstance(share, str) else int(len(content) * share)
    elsewhere.parent.mkdir()
    elsewhere.write_bytes(content[:size])
    assert why_not_in_a_process(forks, elsewhere) == (
        f"{elsewhere} cannot be loaded: the file is cut off or is no library "
        "(python -m cifar10.ops.kernels.build --anew)"
    )
    monkeypatch.setenv("CXX", "false")
    assert build.main([]) == 1  # It compiles.


def test_a_whole_library_is_loaded_from_wherever_it_lies(compiled, forks, elsewhere):
    elsewhere.parent.mkdir()
    elsewhere.write_bytes(COMPILED.read_bytes())
    assert why_not_in_a_process(forks, elsewhere) == "None"


def test_a_library_in_a_folder_that_is_not_utf_8_is_left_out(compiled, forks, tmp_path):
    folder = tmp_path / os.fsdecode(b"b\xe4ume")
    folder.mkdir()
    (folder / "kernels.so").write_bytes(COMPILED.read_bytes())
    code = "import sys; sys.stdout.reconfigure(errors='backslashreplace')\n"
    done = forks.run_code(code + _WHY_NOT, folder / "kernels.so")
    assert "ume/kernels.so cannot be loaded: its path is not UTF-8 (" in done.stdout, done


_AS_NOBODY = """
import os, pathlib, sys
from cifar10.ops.kernels import build, library
library.why_impossible = lambda flags: None
library.path = lambda: pathlib.Path(sys.argv[1])
os.seteuid(65534)  # Root may read every folder.
print(library.why_not(frozenset()))
print(build.main([]))
"""


@pytest.mark.parametrize(("of_folder", "of_file"), [(0o700, 0o755), (0o755, 0o700)])
def test_a_library_that_may_not_be_read_is_left_out_and_the_way_out_named(
    forks, of_folder, of_file
):
    if os.geteuid() != 0:
        pytest.skip("needs root, to become a user who may not read the file")
    with tempfile.TemporaryDirectory() as folder:  # Others may not enter pytest's folders.
        os.chmod(folder, 0o755)
        path = pathlib.Path(folder) / "built" / "kernels.so"
        path.parent.mkdir()
        path.write_bytes(pathlib.Path(sys.executable).read_bytes())
        path.chmod(of_file)
        path.parent.chmod(of_folder)
        done = forks.run_code(_AS_NOBODY, path)
    built = path.parent
    reason = f"Permission denied; who owns {built} can let others read it (chmod -R a+rX {built})"
    assert done.stdout.splitlines() == [f"{path} cannot be loaded: {reason}", "1"], done
    assert done.stderr.splitlines() == [
        f"Our own convolutions cannot be had: {path} cannot be read: {reason}",
        "Training does without them, and takes longer.",
    ]


def test_a_new_library_reaches_the_disk_before_its_name_does(elsewhere, tmp_path, monkeypatch):
    monkeypatch.setenv("CXX", fake_compiler(tmp_path))
    with failing_disk.every_rename_is_synced() as renamed:
        assert build.main([]) == 0
    assert renamed == [str(elsewhere)]


def test_other_sources_make_another_library(tmp_path, monkeypatch):
    for source in library.SOURCE_DIR.glob("*.*"):
        (tmp_path / source.name).write_bytes(source.read_bytes())
    before = library.path().name
    monkeypatch.setattr(library, "SOURCE_DIR", tmp_path)
    assert library.path() == tmp_path / "built" / before
    (tmp_path / "conv_op.cc").write_text("// changed")
    assert library.path().name != before


def test_tensorflow_may_be_the_package_without_gpus(root, python_with_tensorflow_cpu):
    code = "from cifar10.ops.kernels import library; print(library.path())"
    done = subprocess.run(
        [python_with_tensorflow_cpu, "-c", code],
        cwd=root, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout == f"{library.path()}\n"


def test_without_a_compiler_the_build_says_so(elsewhere, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    assert build.main([]) == 2
    assert "no C++ compiler on PATH" in capsys.readouterr().err
    assert not elsewhere.exists()


def test_a_compiler_that_is_not_there_is_named(elsewhere, monkeypatch, capsys):
    monkeypatch.setenv("CXX", "no-such-compiler")
    assert build.main([]) == 2
    assert "CXX is no-such-compiler, which is not on PATH" in capsys.readouterr().err


@pytest.mark.parametrize("words", ["'g++", " "])
def test_a_compiler_of_no_words_is_not_there(elsewhere, monkeypatch, capsys, words):
    monkeypatch.setenv("CXX", words)
    assert build.main([]) == 2
    assert f"CXX is {words}, which is not on PATH" in capsys.readouterr().err


def test_a_compiler_may_have_arguments(elsewhere, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("CXX", f"env -u NOTHING {shlex.quote(fake_compiler(tmp_path))}")
    assert build.main([]) == 0
    assert elsewhere.read_text() == "compiled\n"
    (tmp_path / "my tools").mkdir()
    monkeypatch.setenv("CXX", fake_compiler(tmp_path / "my tools"))
    assert build.main(["--anew"]) == 0
    monkeypatch.setenv("CXX", "env false")
    assert build.main(["--anew"]) == 1
    assert f"{shutil.which('env')} false failed.\n" in capsys.readouterr().err


def test_a_compiler_that_fails_is_quoted_and_leaves_nothing(
    elsewhere, tmp_path, monkeypatch, capsys
):
    compiler = tmp_path / "broken"
    compiler.write_text("#!/bin/sh\necho 'conv_op.cc:1: error: of course' >&2\nexit 1\n")
    compiler.chmod(0o755)
    monkeypatch.setenv("CXX", str(compiler))
    assert build.main([]) == 1
    errors = capsys.readouterr().err
    assert "conv_op.cc:1: error: of course" in errors
    assert "Training does without them" in errors
    assert list(elsewhere.parent.iterdir()) == []


def test_a_folder_that_cannot_be_written_is_named(small_disk, monkeypatch, capsys):
    place = small_disk / "built"
    monkeypatch.setattr(library, "path", lambda: place / "kernels.so")
    monkeypatch.setattr(library, "why_impossible", lambda flags: None)
    # The superuser may write anywhere but to a file system that is read-only.
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    monkeypatch.setenv("CXX", "true")
    assert build.main([]) == 1
    assert capsys.readouterr().err.startswith(
        f"Our own convolutions cannot be had: [Errno 30] Read-only file system: '{place}'; whoever "
        f"may write to {place} can compile them\n"
    )


def test_other_errors_are_not_blamed_on_permissions(elsewhere, monkeypatch, capsys):
    elsewhere.parent.write_bytes(b"")
    monkeypatch.setenv("CXX", "true")
    assert build.main([]) == 1
    assert capsys.readouterr().err.startswith(
        f"Our own convolutions cannot be had: [Errno 17] File exists: '{elsewhere.parent}'; when "
        "that is mended, run python -m cifar10.ops.kernels.build again\n"
    )


def fake_compiler(folder: pathlib.Path) -> str:
    """The path of a compiler whose output is a word."""
    compiler = folder / "fake"
    compiler.write_text('#!/bin/sh\nfor output; do :; done\necho compiled > "$output"\n')
    compiler.chmod(0o755)
    return str(compiler)


def test_a_build_removes_what_is_older_than_a_day(elsewhere, tmp_path, monkeypatch):
    monkeypatch.setenv("CXX", fake_compiler(tmp_path))
    folder = elsewhere.parent
    for name in ("kernels-1.so", "kernels-2.so", "part-1/0.o", "part-2/0.o", "notes.txt"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()
    for name in ("kernels-1.so", "part-1", "notes.txt"):
        os.utime(folder / name, (0, 0))
    assert build.main([]) == 0
    assert elsewhere.read_text() == "compiled\n"
    kept = ["kernels-2.so", "kernels.so", "notes.txt", "part-2"]
    assert sorted(path.name for path in folder.iterdir()) == kept


def test_what_is_there_is_not_compiled_again_unless_asked(elsewhere, monkeypatch, capsys):
    built_before = pathlib.Path(sys.executable).read_bytes()  # A whole ELF file.
    elsewhere.parent.mkdir()
    elsewhere.write_bytes(built_before)
    assert build.main([]) == 0
    monkeypatch.setenv("CXX", "false")
    assert build.main(["--anew"]) == 1
    assert elsewhere.read_bytes() == built_before


def test_a_machine_that_cannot_use_them_does_not_compile_them(elsewhere, monkeypatch, capsys):
    monkeypatch.setattr(library, "why_impossible", lambda flags: "this CPU has no avx2")
    assert build.main([]) == 2
    assert "cannot be had: this CPU has no avx2" in capsys.readouterr().err
    assert not elsewhere.parent.exists()
