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
import statistics
import time
from collections.abc import Sequence
from typing import NamedTuple, Optional

from rich.console import Console
from rich.table import Table

from benchmarks.arguments import new_parser
from benchmarks.clusters.cluster import MLP, cluster_job
from benchmarks.errors import BenchmarkError
from testbeds.kills import PHASES, kill_in_phase

ROLES = ("ps", "worker", "master", "evaluator")
MODES = {"async": ("--sync=false",), "sync": (), "in-graph": ("--replication=in-graph",)}
_CHECKPOINTS = 5  # of a run
_RUN_SECS = 300.0


class Kill(NamedTuple):
    """Which task is killed when, and for how long it stays away."""

    role: str
    phase: str
    restart_secs: float


def main(argv: Sequence[str]) -> None:
    """Runs the rounds and prints a table."""
    parser = new_parser("recovery", __doc__)
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
      TestbedError: a task failed.
      BenchmarkError: the job did not reach its last step.
    """
    flags = [
        *MLP,
        *MODES[mode],
        f"--data-dir={arguments.data_dir.resolve()}",
        f"--train-steps={arguments.steps}",
        f"--checkpoint-steps={max(1, arguments.steps // _CHECKPOINTS)}",
    ]
    with cluster_job(flags, evaluator=has_evaluator) as (tasks, output):
        started = time.monotonic()
        tasks.start()
        if kill:
            label = f"{kill.role}/0"
            kill_in_phase(tasks, label, kill.phase, output, validations=_CHECKPOINTS // 2)
            time.sleep(kill.restart_secs)
            tasks.start(label)
        tasks.wait(_RUN_SECS)
        seconds = time.monotonic() - started
        reached = json.loads((output / "result.json").read_text())["figures"]["global_step"]
    if reached < arguments.steps:
        raise BenchmarkError(f"{mode}, {kill}: ended at step {reached} of {arguments.steps}")
    return seconds


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
