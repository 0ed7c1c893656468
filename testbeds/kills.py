"""Kills a task of a cluster of processes in a chosen phase of its job."""

import pathlib
import signal
import time

from testbeds.errors import TestbedError
from testbeds.processes import ClusterOfProcesses

START_UP, MID_RUN, SAVING = ("start-up", "mid-run", "saving")
_SAVING_SECS = 240.0  # time limit for a checkpoint to begin


def kill_in_phase(tasks: ClusterOfProcesses, label: str, phase: str, output: pathlib.Path) -> None:
    """Kills a task with SIGKILL when its job is in a given phase.

    Args:
      tasks: the cluster, whose tasks have been started.
      label: label of the task to kill, e.g. `worker/0`.
      phase: START_UP (the task has printed its first line), MID_RUN (a checkpoint has been
        validated), or SAVING (a checkpoint is half written).
      output: the job's output folder.

    Raises:
      TestbedError: the job did not reach the phase in time.
    """
    if phase == SAVING:
        _stop_while_saving(tasks, output)
    elif phase == START_UP:
        tasks.wait_for_output(label, "\n")
    else:
        validating = "evaluator/0" if "evaluator/0" in tasks.labels else "master/0"
        tasks.wait_for_output(validating, "validation accuracy")
    tasks.kill(label)
    if phase == SAVING and label != "master/0":
        tasks.kill("master/0", signal.SIGCONT)


def _stop_while_saving(tasks: ClusterOfProcesses, output: pathlib.Path) -> None:
    """Stops the master while it writes a checkpoint other than its first (step 0)."""
    deadline = time.monotonic() + _SAVING_SECS
    while time.monotonic() < deadline:
        if _is_half_written(output):
            tasks.kill("master/0", signal.SIGSTOP)
            if _is_half_written(output):
                return
            tasks.kill("master/0", signal.SIGCONT)  # It had finished the checkpoint before.
        time.sleep(0.0005)
    raise TestbedError(f"no checkpoint within {_SAVING_SECS:g} s\n{tasks.all_output()}")


def _is_half_written(output: pathlib.Path) -> bool:
    """Whether files of a checkpoint after step 0 exist under temporary names."""
    return any("temp" in path.name for path in output.glob("model.ckpt-[1-9]*"))
