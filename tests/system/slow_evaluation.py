"""cifar10_main.py on a machine whose evaluations take long, however fast the tests' machine is.

Environment variables say how long; without them, nothing is slow:
  VALIDATION_BATCH_SECS  the least time for each batch of a validation during training
  EVAL_BATCH_SECS        the least time for each batch of the eval split
  HOLD_EVAL              the path of a file; while it exists, no batch of the eval split ends
"""

import os
import pathlib
import sys
import time
from typing import Any

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))

from cifar10.host.process import leave
from cifar10.main import main
from cifar10.run import results
from cifar10.run.hooks.validation import EvaluationHook

PROGRAM = pathlib.Path(__file__)
_before_batch = EvaluationHook.before_run


def _sleep(hook: EvaluationHook, run_context: Any) -> None:
    _before_batch(hook, run_context)
    time.sleep(float(os.environ.get("VALIDATION_BATCH_SECS", "0")))


class _HookOfEvalSplit(EvaluationHook):
    """The hook of the eval split, with a slowness of its own."""

    def before_run(self, run_context: Any) -> None:
        """Comes before each batch."""
        _before_batch(self, run_context)
        time.sleep(float(os.environ.get("EVAL_BATCH_SECS", "0")))
        while os.path.exists(os.environ.get("HOLD_EVAL", "")):
            time.sleep(0.05)


if __name__ == "__main__":
    EvaluationHook.before_run = _sleep  # type: ignore[assignment]
    results.EvaluationHook = _HookOfEvalSplit  # type: ignore[misc]
    leave(main())
