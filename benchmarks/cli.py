"""The command line `python -m benchmarks NAME ...`; loads only the module of that benchmark."""

import importlib
import signal
import sys
from collections.abc import Sequence
from typing import NamedTuple, Optional

from benchmarks.errors import BenchmarkError
from cifar10.errors import UserError
from cifar10.tf_internals import native_log
from launch.errors import LaunchError
from testbeds.errors import TestbedError


class Benchmark(NamedTuple):
    """A benchmark.

    Attributes:
      module: name of the module below `benchmarks` whose `main` runs the benchmark.
      measures: one-line description for `--help`.
    """

    module: str
    measures: str


BENCHMARKS = {
    "compare": Benchmark(
        "peers.compare",
        "training beside Keras, MirroredStrategy and PyTorch: a table and a picture",
    ),
    "advise": Benchmark(
        "scaling.advise", "the fastest way to train on your own machine or hosts, by trying them"
    ),
    "scale": Benchmark(
        "scaling.scale",
        "what more workers, parameter servers or a faster network would give, by a model",
    ),
    "check-scale": Benchmark(
        "scaling.check_scale", "that model against real runs over slow links (root)"
    ),
    "link-sharing": Benchmark(
        "scaling.link_sharing", "how evenly TCP connections share a slow link (root)"
    ),
    "bare-step": Benchmark("one_machine.bare_step", "the training step alone"),
    "towers": Benchmark(
        "one_machine.towers", "whether other towers and threads are faster, and their flags"
    ),
    "kernels": Benchmark("one_machine.kernels", "our convolutions for CPUs beside TensorFlow's"),
    "outside": Benchmark(
        "one_machine.outside", "what a run spends outside of its training steps, by part"
    ),
    "input": Benchmark("one_machine.input_speed", "the training input alone: images/s and memory"),
    "data-prep": Benchmark("one_machine.data_prep", "archives to records"),
    "cluster": Benchmark("clusters.cluster", "a whole job; a step with a parameter server"),
    "many": Benchmark(
        "clusters.many", "start and end of jobs of up to 16 trainers; memory of their servers"
    ),
    "converge": Benchmark(
        "convergence.converge",
        "first steps of training with three seeds, compared with committed curves",
    ),
    "learning": Benchmark(
        "learning.learning",
        "whole runs, by batch size and in clusters: curves, a table and pictures",
    ),
    "tables": Benchmark(
        "tables", "the documents' tables of measured results, renewed from benchmarks/results/"
    ),
}


def main(argv: Optional[Sequence[str]] = None) -> int:
    """Runs a benchmark.

    Returns:
      The exit code: that of the benchmark, 2 (or that of the error) after an error, 130 after
      Ctrl-C or SIGTERM.
    """
    words = list(sys.argv[1:] if argv is None else argv)
    if not words or words[0] in ("-h", "--help"):
        print("usage: python -m benchmarks NAME ...; NAME --help tells more\n")
        print("\n".join(f"  {name:<12} {one.measures}" for name, one in BENCHMARKS.items()))
        return 0 if words else 2
    name, *rest = words
    native_log.silence()
    # SIGTERM acts like Ctrl-C, so that a benchmark ends the processes that it has started.
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        if name not in BENCHMARKS:
            raise BenchmarkError(f"no benchmark {name}; there are {', '.join(BENCHMARKS)}")
        module = importlib.import_module(f"benchmarks.{BENCHMARKS[name].module}")
        code: int = module.main(rest) or 0
    except (BenchmarkError, TestbedError, UserError, LaunchError) as error:
        print(f"error: {error}", file=sys.stderr)
        return getattr(error, "exit_code", 2)
    except KeyboardInterrupt:
        return 130
    finally:
        signal.signal(signal.SIGTERM, before)
    return code
