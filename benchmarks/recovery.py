"""What a killed task costs: seconds lost by role, phase and mode.

    python -m benchmarks recovery --data-dir data --rounds 3

Each run is a job of a master, a worker and a parameter server (and an evaluator, where that is the
role) that trains a 100-unit MLP. One task is killed with SIGKILL and started again after
--restart-secs with the same TF_CONFIG: at start-up (it has printed its first line), mid-run (half
of the checkpoints have been validated), or while a checkpoint is half written. Seconds lost are
those of the run with the kill minus those of the same run without, of the same round; from the
start of the processes to the last exit, --restart-secs included. Each run prints a JSON line, the
end is a table of medians. All tasks run on this machine.
"""

import argparse
import json
import os
import pathlib
import signal
import statistics
import time
from collections.abc import Sequence
from typing import NamedTuple, Optional

from rich.console import Console
from rich.table import Table

from benchmarks.cluster import MLP, Tasks, tasks_of

ROLES = ("ps", "worker", "master", "evaluator")
START_UP, MID_RUN, SAVING = PHASES = ("start-up", "mid-run", "saving")
MODES = {"async": ("--sync=false",), "sync": (), "in-graph": ("--replication=in-graph",)}
_CHECKPOINTS = 5  # of a run
_PHASE_SECS = 120.0  # a task comes to its phase within these
_RUN_SECS = 300.0


class Kill(NamedTuple):
    """Which task is killed when, and for how long it stays away."""

    role: str
    phase: str
    restart_secs: float


def main(argv: Sequence[str]) -> None:
    """Runs the rounds and prints a table."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks recovery",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--data-dir", type=pathlib.Path, default="data")
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--restart-secs", type=float, default=1.0)
    parser.add_argument("--roles", nargs="+", choices=ROLES, default=ROLES)
    parser.add_argument("--phases", nargs="+", choices=PHASES, default=PHASES)
    parser.add_argument("--modes", nargs="+", choices=list(MODES), default=list(MODES))
    arguments = parser.parse_args(argv)
    lost: dict[tuple[str, str, str], list[float]] = {}
    for index in range(arguments.rounds):
        for mode in arguments.modes:
            undisturbed: dict[bool, float] = {}
            for role in arguments.roles:
                has_evaluator = role == "evaluator"
                if has_evaluator not in undisturbed:
                    undisturbed[has_evaluator] = run(arguments, mode, has_evaluator)
                for phase in arguments.phases:
                    load = os.getloadavg()[0]
                    kill = Kill(role, phase, arguments.restart_secs)
                    seconds = run(arguments, mode, has_evaluator, kill)
                    row = {
                        "round": index + 1,
                        "mode": mode,
                        "role": role,
                        "phase": phase,
                        "seconds": round(seconds, 2),
                        "seconds_undisturbed": round(undisturbed[has_evaluator], 2),
                        "seconds_lost": round(seconds - undisturbed[has_evaluator], 2),
                        "load": load,
                    }
                    print(json.dumps(row), flush=True)
                    lost.setdefault((role, phase, mode), []).append(row["seconds_lost"])
    Console().print(make_table(lost, arguments.modes))


def run(
    arguments: argparse.Namespace, mode: str, has_evaluator: bool, kill: Optional[Kill] = None
) -> float:
    """Seconds of one job, from the start of its processes to the last exit.

    Args:
      arguments: data and steps.
      mode: one of MODES.
      has_evaluator: a separate evaluator validates.
      kill: what happens to a task of it; None: nothing.

    Raises:
      RuntimeError: a task failed, or the job did not reach its last step.
    """
    flags = [
        *MLP,
        *MODES[mode],
        f"--data-dir={arguments.data_dir.resolve()}",
        f"--train-steps={arguments.steps}",
        f"--checkpoint-steps={max(1, arguments.steps // _CHECKPOINTS)}",
    ]
    counts = {"master": 1, "worker": 1, "ps": 1, "evaluator": int(has_evaluator)}
    with tasks_of(flags, **counts) as (tasks, output):
        started = time.monotonic()
        tasks.start()
        if kill:
            label = f"{kill.role}/0"
            kill_in_phase(tasks, label, kill.phase, output)
            time.sleep(kill.restart_secs)
            tasks.start(label)
        tasks.wait(_RUN_SECS)
        seconds = time.monotonic() - started
        reached = json.loads((output / "result.json").read_text())["figures"]["global_step"]
    if reached < arguments.steps:
        raise RuntimeError(f"{mode}, {kill}: ended at step {reached} of {arguments.steps}")
    return seconds


def kill_in_phase(tasks: Tasks, label: str, phase: str, output: pathlib.Path) -> None:
    """Kills a task when the job is in that phase.

    Raises:
      RuntimeError: a task failed before.
      TimeoutError: the phase did not come.
    """
    deadline = time.monotonic() + _PHASE_SECS
    validating = "evaluator/0" if "evaluator/0" in tasks.labels else "master/0"
    while time.monotonic() < deadline:
        tasks.check()
        validated = tasks.output(validating).count("validation accuracy")
        if (phase == START_UP and tasks.output(label)) or (
            phase == MID_RUN and validated >= _CHECKPOINTS // 2
        ):
            tasks.kill(label)
            return
        if phase == SAVING and is_saving(output):
            tasks.send_signal("master/0", signal.SIGSTOP)
            still = is_saving(output)  # The master may have been faster than the signal.
            if still:
                tasks.kill(label)
            if not still or label != "master/0":
                tasks.send_signal("master/0", signal.SIGCONT)
            if still:
                return
        time.sleep(0.0005)
    raise TimeoutError(f"{label} did not come to {phase} within {_PHASE_SECS:g} s")


def is_saving(output: pathlib.Path) -> bool:
    """Whether a checkpoint after that of step 0 is half written, under temporary names."""
    return any("temp" in path.name for path in output.glob("model.ckpt-[1-9]*"))


def make_table(lost: dict[tuple[str, str, str], list[float]], modes: Sequence[str]) -> Table:
    """Seconds lost: medians, and extremes where there are several."""
    table = Table("role", "phase", *modes, title="seconds lost by a kill and a restart")
    for role, phase in dict.fromkeys(key[:2] for key in lost):
        cells = []
        for mode in modes:
            values = lost[role, phase, mode]
            spread = f" ({min(values):.1f} to {max(values):.1f})" if len(values) > 1 else ""
            cells.append(f"{statistics.median(values):.1f}{spread}")
        table.add_row(role, phase, *cells)
    return table
