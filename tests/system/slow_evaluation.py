"""cifar10_main.py on a machine that needs at least BATCH_SECS for each batch of an evaluation.

So an evaluation outlasts a time-out, however fast the machine is on which the tests run.
"""

import pathlib
import sys
import time
from typing import Any

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))

from cifar10.host.process_end import leave
from cifar10.main import main
from cifar10.run.hooks.training import StopEvaluationHook

PROGRAM = pathlib.Path(__file__)
BATCH_SECS = 0.06


def _sleep(hook: StopEvaluationHook, run_context: Any, run_values: Any) -> None:
    time.sleep(BATCH_SECS)


if __name__ == "__main__":
    StopEvaluationHook.after_run = _sleep
    leave(main())
