"""cifar10_main.py on a machine whose evaluations take long, however fast the tests' machine is.

Environment variables say how long; without them, nothing is slow:
  VALIDATION_BATCH_SECS  the least time for each batch of a validation during training
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
from cifar10.run import evaluate
from cifar10.run.hooks.validation import EvaluationHook

PROGRAM = pathlib.Path(__file__)
_after_batch = EvaluationHook.after_run


def _sleep(hook: EvaluationHook, run_context: Any, run_values: Any) -> None:
    _after_batch(hook, run_context, run_values)
    time.sleep(float(os.environ.get("VALIDATION_BATCH_SECS", "0")))


class _HookOfEvalSplit(EvaluationHook):
    """The hook of the eval split."""

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """Comes after each batch."""
        _after_batch(self, run_context, run_values)
        while os.path.exists(os.environ.get("HOLD_EVAL", "")):
            time.sleep(0.05)


if __name__ == "__main__":
    EvaluationHook.after_run = _sleep
    evaluate.EvaluationHook = _HookOfEvalSplit  # type: ignore[misc]
    leave(main())
