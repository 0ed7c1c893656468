"""The command line `python -m benchmarks NAME ...`; loads only the module of that benchmark."""

import importlib
import os
import signal
import sys
from collections.abc import Sequence
from typing import Optional

from benchmarks.arguments import BenchmarkError
from cifar10.errors import UserError
from testbeds.errors import TestbedError

# The module of each, whose `main` runs it, and what it measures.
BENCHMARKS = {
    "compare": "training beside Keras, MirroredStrategy and PyTorch",
    "advise": "the fastest way to train on your own machine or hosts, by trying them",
    "scale": "what more workers, parameter servers or a faster network would give, by a model",
    "towers": "whether other towers and threads are faster, and their flags",
    "kernels": "our convolutions for CPUs beside TensorFlow's",
    "outside": "what a run spends outside of its training steps, by part",
    "cluster": "a whole job; a step with a parameter server",
    "converge": "first steps of training with three seeds, compared with committed curves",
    "paper": "accuracy by the paper's schedule beside PyTorch's, of trainings that have ended",
    "tables": "the documents' tables of measured results, renewed from benchmarks/results/",
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
        print("\n".join(f"  {name:<12} {measures}" for name, measures in BENCHMARKS.items()))
        return 0 if words else 2
    name, *rest = words
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # before TensorFlow loads
    # SIGTERM acts like Ctrl-C, so that a benchmark ends the processes that it has started.
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        if name not in BENCHMARKS:
            raise BenchmarkError(f"no benchmark {name}; there are {', '.join(BENCHMARKS)}")
        code: int = importlib.import_module(f"benchmarks.{name}").main(rest) or 0
    except (BenchmarkError, TestbedError, UserError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    finally:
        signal.signal(signal.SIGTERM, before)
    return code


if __name__ == "__main__":
    sys.exit(main())
