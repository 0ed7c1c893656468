"""Training CIFAR-10 with tf.estimator; `cifar10.main.main` is the command's entry point.

The Python API, in docs/python.md:

    result = cifar10.train(recipe="fast", data_dir="data", output_dir="fast")
    cifar10.evaluate(output_dir="fast")["accuracy"]
    cifar10.Predictor("fast").predict(["cat.png"])
"""

import os
import platform
import sys
import types
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cifar10.api import Predictor, Result, evaluate, train

__all__ = ["Predictor", "Result", "evaluate", "train"]

# TensorFlow 2.15 reads this when it loads. By itself it uses oneDNN only on CPUs with AVX512_VNNI,
# AVX512_BF16, AVX_VNNI or AMX; on others it is slower without, and has no NCHW convolutions.
if platform.machine() == "x86_64":
    os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")


def __getattr__(name: str) -> Any:
    """Imports the API when it is used, since modules of this package need not wait for it."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from cifar10 import api

    return getattr(api, name)


class _Package(types.ModuleType):
    """Has the function `train`, although importing the module `cifar10.train` sets that name."""

    train = property(lambda package: __getattr__("train"), lambda package, module: None)


sys.modules[__name__].__class__ = _Package
