"""Compares our CPU convolutions with TensorFlow's, alone or in whole training steps.

    python -m benchmarks kernels
    python -m benchmarks kernels -- --num-layers=44 --precision=bf16

prints the machine and a Markdown table. Without `--`, it times single convolutions: those of a
ResNet's stages and five of fastnet's, with 64 images and one thread, in fp32 and, where the CPU has
it, bf16, without and with products of pairs (`--kernels pairs`). Their figure is CPU time, which
includes allocating the outputs. With `--`, it times the training step of the flags that follow.
Both ways take turns, so that other load affects both.
"""

import dataclasses
import functools
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow.compat.v1 as tf

from benchmarks import arguments
from benchmarks.one_machine.bare_step import Trainer
from benchmarks.table_text import machine_text
from cifar10.config.train_config import TrainConfig
from cifar10.host.cpu import cpu_flags
from cifar10.ops.kernels import library
from cifar10.run.environment import hardware, versions

_IMAGES = 64
# Side of the images in pixels, input channels, filters.
_SHAPES = (
    *((32, 16, 16), (16, 32, 32), (8, 64, 64)),
    *((31, 24, 64), (15, 64, 64), (15, 64, 256), (7, 256, 256), (3, 256, 256)),
)
_KINDS = ("forwards", "gradient of inputs", "gradient of filters")
_TURN_SECS = 0.5


def main(argv: Sequence[str]) -> None:
    """Compares whole steps if the command line has `--`, else single convolutions."""
    tf.logging.set_verbosity(tf.logging.FATAL)
    parser = arguments.new_parser("kernels", __doc__)
    parser.add_argument(
        "--rounds", type=arguments.at_least_one, default=25, help="turns of each way (25)"
    )
    ours = arguments.parse(parser, argv)
    print(f"{machine_text(hardware(), versions())}; n = {ours.rounds}\n")
    if "--" in argv:
        _compare_steps(ours.config, ours.rounds)
        return
    print("| images | channels | precision | | TensorFlow's, us an image | ours | ratio |")
    print("|---|---|---|---|---|---|---|")
    for precision in ["fp32"] + ["bf16", "bf16, pairs"] * ("avx512_bf16" in cpu_flags()):
        for shape in _SHAPES:
            _compare_ops(*shape, precision, ours.rounds)


def _compare_ops(side: int, channels: int, filters: int, precision: str, rounds: int) -> None:
    dtype = tf.float32 if precision == "fp32" else tf.bfloat16
    pairs = precision.endswith("pairs")
    threads = tf.ConfigProto(intra_op_parallelism_threads=1, inter_op_parallelism_threads=1)
    with tf.Graph().as_default(), tf.Session(config=threads) as session:
        theirs, ours = _ops(side, channels, filters, dtype, pairs)
        session.run(tf.global_variables_initializer())
        for kind, *both in zip(_KINDS, theirs, ours):
            if kind == "gradient of inputs" and channels % library.CHANNELS:
                continue  # It is always TensorFlow's.
            times = _take_turns([functools.partial(_cpu_secs, session, op) for op in both], rounds)
            title = f"{side}x{side} | {channels} to {filters} | {precision} | {kind}"
            print(f"| {title} | {_figures(times, 1e6 / _IMAGES)} |", flush=True)


def _ops(
    side: int, channels: int, filters: int, dtype: Any, pairs: bool
) -> tuple[list[Any], list[Any]]:
    """Returns TensorFlow's ops and ours, each in the order of `_KINDS`."""
    random, shape = np.random.default_rng(0), [_IMAGES, side, side]
    x, upstream, weights = (
        tf.get_variable(
            name,
            initializer=tf.cast(random.normal(size=size).astype(np.float32), dtype),
            use_resource=True,
        ).read_value()
        for name, size in (
            ("x", [*shape, channels]),
            ("upstream", [*shape, filters]),
            ("w", [3, 3, channels, filters]),
        )
    )
    own, settings = library.load(), {"strides": [1, 1, 1, 1], "padding": "SAME"}
    theirs = [
        tf.nn.conv2d(x, weights, **settings),
        tf.nn.conv2d_backprop_input([*shape, channels], weights, upstream, **settings),
        tf.nn.conv2d_backprop_filter(x, weights.shape, upstream, **settings),
    ]
    ours = [
        own.cifar10_conv3x3(x, weights, pairs=pairs),
        own.cifar10_conv3x3(upstream, weights, transposes=True, pairs=pairs),
        own.cifar10_conv3x3_backprop_filter(x, upstream, pairs=pairs),
    ]
    return [one.op for one in theirs], [one.op for one in ours]


def _compare_steps(config: TrainConfig, rounds: int) -> None:
    trainers = [
        Trainer(dataclasses.replace(config, kernels=kernels))
        for kernels in ("tensorflow", "pairs" if config.kernels == "pairs" else "own")
    ]
    times = _take_turns([functools.partial(one.step_secs, _TURN_SECS) for one in trainers], rounds)
    title = f"{config.model_title}, {config.train_batch_size} images, {config.precision}"
    print("| step | TensorFlow's, ms | ours, ms | ratio |\n|---|---|---|---|")
    print(f"| {title} | {_figures(times, 1e3)} |")


def _cpu_secs(session: Any, op: Any) -> float:
    start = time.process_time()
    session.run(op)
    return time.process_time() - start


def _take_turns(ways: Sequence[Callable[[], float]], rounds: int) -> list[list[float]]:
    """Returns the seconds of each way in each round, without a first round for warming up."""
    times = [[way() for way in ways] for _ in range(rounds + 1)]
    return [list(one) for one in zip(*times[1:])]


def _figures(times: Sequence[Sequence[float]], factor: float) -> str:
    """Returns table cells: both medians times `factor`; median and quartiles of the ratios."""
    theirs, ours = (f"{factor * statistics.median(one):.1f}" for one in times)
    low, middle, high = np.quantile([a / b for a, b in zip(*times)], [0.25, 0.5, 0.75])
    return f"{theirs} | {ours} | {middle:.2f} ({low:.2f} to {high:.2f})"
