"""`python -m benchmarks NAME ...`: the command line. What a benchmark needs loads when it runs."""

import signal
import sys
from collections.abc import Callable, Sequence
from typing import Any, Optional

from benchmarks.errors import BenchmarkError
from cifar10.errors import UserError
from cifar10.tf_internals import native_log
from launch.errors import LaunchError

# Name -> what it measures.
BENCHMARKS = {
    "compare": "training beside Keras, MirroredStrategy and PyTorch: a table and a picture",
    "advise": "the fastest way to train on your own machine or hosts, by trying them",
    "scale": "what more workers, parameter servers or a faster network would give, by a model",
    "check-scale": "that model against real runs over slow links (root)",
    "bare-step": "the training step alone",
    "towers": "whether other towers and threads are faster, and their flags",
    "kernels": "our convolutions for CPUs beside TensorFlow's",
    "input": "the training input alone: images/s and memory",
    "cluster": "a whole job of a cluster; a step with a parameter server",
    "launchers": "what launching a job costs, by each way to run it",
    "recovery": "what a killed task costs",
    "transfers": "what crosses between a trainer and its parameter servers in a step",
    "data-prep": "archives to records",
    "converge": "first steps of training with three seeds, held against committed curves",
    "learning": "whole runs, by batch size and in clusters: curves, a table and pictures",
    "tables": "the documents' tables of measured results, anew from benchmarks/results/",
}


def main(argv: Optional[Sequence[str]] = None) -> int:
    """Runs a benchmark; exit code 2 for a mistake of the user's."""
    words = list(sys.argv[1:] if argv is None else argv)
    if not words or words[0] in ("-h", "--help"):
        print("usage: python -m benchmarks NAME ...; NAME --help tells more\n")
        print("\n".join(f"  {name:<12} {text}" for name, text in BENCHMARKS.items()))
        return 0 if words else 2
    name, *rest = words
    native_log.silence()
    # As by Ctrl-C, so that a benchmark ends what it has started.
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        if name not in BENCHMARKS:
            raise BenchmarkError(f"no benchmark {name}; there are {', '.join(BENCHMARKS)}")
        code: int = _main_of(name)(rest) or 0
    except (BenchmarkError, UserError, LaunchError) as error:
        print(f"error: {error}", file=sys.stderr)
        return getattr(error, "exit_code", 2)
    except KeyboardInterrupt:
        return 130
    finally:
        signal.signal(signal.SIGTERM, before)
    return code


def _main_of(name: str) -> Callable[[Sequence[str]], Any]:
    """Imports a benchmark; by its name as it stands, so that tests can see who imports whom."""
    if name == "compare":
        from benchmarks import compare

        return compare.main
    if name == "converge":
        from benchmarks import converge

        return converge.main
    if name == "learning":
        from benchmarks import learning

        return learning.main
    if name == "tables":
        from benchmarks import tables

        return tables.main
    if name == "advise":
        from benchmarks import advise

        return advise.main
    if name == "scale":
        from benchmarks import scale

        return scale.main
    if name == "check-scale":
        from benchmarks import check_scale

        return check_scale.main
    if name == "bare-step":
        from benchmarks import bare_step

        return bare_step.main
    if name == "towers":
        from benchmarks import towers

        return towers.main
    if name == "kernels":
        from benchmarks import kernels

        return kernels.main
    if name == "input":
        from benchmarks import input_speed

        return input_speed.main
    if name == "cluster":
        from benchmarks import cluster

        return cluster.main
    if name == "launchers":
        from benchmarks import launchers

        return launchers.main
    if name == "recovery":
        from benchmarks import recovery

        return recovery.main
    if name == "transfers":
        from benchmarks import transfers

        return transfers.main
    from benchmarks import data_prep

    return data_prep.main
