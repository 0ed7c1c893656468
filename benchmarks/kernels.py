"""Compares our CPU convolutions with TensorFlow's, alone or in whole training steps.

    python -m benchmarks kernels
    python -m benchmarks kernels -- --num-layers=44 --precision=bf16

prints the machine and a Markdown table. Without `--`, it times single convolutions: those of a
ResNet's stages and five of fastnet's, with 64 images and one thread, in fp32 and, where the CPU has
it, bf16, without and with bf16 dot products. They are compared by CPU time, which
includes allocating the outputs. With `--`, it times the steps of a training with the flags that
follow, a process each turn. Both ways take turns, so that other load affects both.
"""

import functools
import itertools
import statistics
import time
from collections.abc import Iterator, Sequence
from typing import Any

from benchmarks import arguments, runs, tables
from cifar10.config.train_config import TrainConfig
from cifar10.host.cpu import cpu_flags

_IMAGES = 64
# Side of the images in pixels, input channels, filters.
_SHAPES = (
    *((32, 16, 16), (16, 32, 32), (8, 64, 64)),
    *((31, 24, 64), (15, 64, 64), (15, 64, 256), (7, 256, 256), (3, 256, 256)),
)
_KINDS = ("forwards", "gradient of inputs", "gradient of filters")
_RATIO = ("ratio", "{ratio:spread.2f}")


def main(argv: Sequence[str]) -> None:
    """Compares whole steps if the command line has `--`, else single convolutions."""
    parser = arguments.new_parser("kernels", __doc__, rounds=25, writes=True)
    options = arguments.parse(parser, argv)
    if "--" in argv:
        rows = [_compare_steps(options.config, options.rounds)]
        columns = [("step", "{title}"), ("TensorFlow's, ms", "{tensorflow:.1f}")]
        columns.append(("ours, ms", "{own:.1f}"))
    else:
        rows = list(_compare_ops(options.rounds))
        columns = [("images", "{size}"), ("channels", "{channels}"), ("precision", "{precision}")]
        columns += [("", "{direction}"), ("TensorFlow's, us an image", "{tensorflow:.1f}")]
        columns += [("ours", "{own:.1f}"), ("ours, GFLOP/s", "{gflops:.0f}")]
    what = "kernels: ours and TensorFlow's, medians, and median and quartiles of the ratios"
    tables.report(what, [*columns, _RATIO], rows, options.rounds, argv, options.out)


def _compare_ops(rounds: int) -> Iterator[dict[str, Any]]:
    """Yields a row for each convolution and direction."""
    import tensorflow.compat.v1 as tf

    tf.logging.set_verbosity(tf.logging.FATAL)
    threads = tf.ConfigProto(intra_op_parallelism_threads=1, inter_op_parallelism_threads=1)
    precisions = ["fp32"] + ["bf16", "bf16, pairs"] * ("avx512_bf16" in cpu_flags())
    for precision, (side, channels, filters) in itertools.product(precisions, _SHAPES):
        with tf.Graph().as_default(), tf.Session(config=threads) as session:
            ops = _ops(side, channels, filters, precision)
            session.run(tf.global_variables_initializer())
            for kind, *both in zip(_KINDS, *ops):
                if None not in both:
                    session.run(both)  # warms up
                    calls = [functools.partial(_cpu_secs, session, op) for op in both]
                    ways = dict(zip(("tensorflow", "own"), calls))
                    row = _statistics(runs.in_turns(ways, rounds, shows=False), 1e6 / _IMAGES)
                    row.update(size=f"{side}x{side}", channels=f"{channels} to {filters}")
                    flops = 2 * 9 * side**2 * channels * filters  # of an image, by the definition
                    row.update(precision=precision, direction=kind, gflops=flops / row["own"] / 1e3)
                    yield row


def _ops(side: int, channels: int, filters: int, precision: str) -> tuple[list[Any], list[Any]]:
    """Returns TensorFlow's ops and ours, each in the order of `_KINDS`; None: we have none."""
    import numpy as np
    import tensorflow.compat.v1 as tf

    from cifar10 import kernels

    random, shape = np.random.default_rng(0), [_IMAGES, side, side]
    dtype = tf.float32 if precision == "fp32" else tf.bfloat16

    def variable(name: str, *size: int) -> Any:
        values = tf.cast(random.normal(size=size).astype(np.float32), dtype)
        return tf.get_variable(name, initializer=values, use_resource=True).read_value()

    x, upstream = variable("x", *shape, channels), variable("upstream", *shape, filters)
    weights = variable("w", 3, 3, channels, filters)
    own, settings = kernels.load(), {"strides": [1, 1, 1, 1], "padding": "SAME"}
    more = {"bf16_dots": precision.endswith("pairs")}
    theirs = [
        tf.nn.conv2d(x, weights, **settings),
        tf.nn.conv2d_backprop_input([*shape, channels], weights, upstream, **settings),
        tf.nn.conv2d_backprop_filter(x, weights.shape, upstream, **settings),
    ]
    forwards = own.cifar10_conv3x3(x, weights, **more)
    ours = [forwards, None, own.cifar10_conv3x3_backprop_filter(x, upstream, **more)]
    if channels % kernels.CHANNELS == 0:
        ours[1] = own.cifar10_conv3x3(upstream, weights, transposes=True, **more)
    return [conv.op for conv in theirs], [conv if conv is None else conv.op for conv in ours]


def _cpu_secs(session: Any, op: Any) -> float:
    start = time.process_time()
    session.run(op)
    return time.process_time() - start


def _compare_steps(config: TrainConfig, rounds: int) -> dict[str, Any]:
    """Returns the row of whole steps."""
    ways = {"tensorflow": ["--kernels=tensorflow"], "own": [f"--kernels={config.kernels}"]}
    rates = runs.rates_by_flags(config, ways, rounds, seconds=3.0)
    secs = {way: [config.train_batch_size / rate for rate in found] for way, found in rates.items()}
    title = f"{config.model_title}, {config.train_batch_size} images, {config.precision}"
    return {"title": title, **_statistics(secs, 1e3)}


def _statistics(times: dict[str, list[float]], factor: float) -> dict[str, Any]:
    """Returns both medians times `factor`, and median and quartiles of the ratios."""
    medians = {way: factor * statistics.median(found) for way, found in times.items()}
    return {**medians, "ratio": runs.quartiles(runs.ratios(*times.values()))}
