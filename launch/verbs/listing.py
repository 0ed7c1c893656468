"""`list`: all runs, each in a row; contacts neither hosts nor schedulers."""

import argparse
import json
import os
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Optional

from launch.cluster.model import LEADS
from launch.errors import HostError
from launch.record.outcome import Cause
from launch.record.run_folder import Record, RunFolder, all_runs, began_at, state_dir
from launch.screen.job_line import duration
from launch.verbs.moments import age

_WRITTEN_SECS = 60.0  # after the end of a run, by another machine's clock
_TITLES = ("run", "state", "age", "backend", "tasks", "step", "accuracy")


@dataclass(frozen=True)
class RunFacts:
    """What the list shows of a run.

    Attributes:
      run: its id.
      state: `starting`, `running`, `done`, `stopped`, `failed (exit code N)`, `not followed`: its
        launcher has ended before it, `elsewhere`: another machine may launch it, or `damaged`.
      began: when it began, in seconds since 1970; None if that is not known.
      backend: where its tasks run.
      tasks: how many it has.
      step: the global step that the master has reported, and the last one.
      eval_accuracy: the accuracy in its result.json; None if it has none that can be read here.
      reason: how it ended; None while it goes on.
      folder: the run's folder.
    """

    run: str
    state: str
    began: Optional[float]
    backend: str
    tasks: int
    step: str
    eval_accuracy: Optional[float]
    reason: Optional[str]
    folder: str


def list_runs(options: argparse.Namespace) -> int:
    """Prints all runs, the newest first."""
    parent = state_dir(options.state_dir)
    found = [facts_of(folder) for folder in reversed(all_runs(parent))]
    if options.json:
        print(json.dumps([asdict(facts) for facts in found], indent=1))
        return 0
    if not found:
        print(f"no runs in {parent}")
        return 0
    from rich.table import Table

    from launch.screen.table import cell, print_table

    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for title in _TITLES:
        right = title in ("age", "tasks", "step", "accuracy")
        table.add_column(title, no_wrap=True, justify="right" if right else "left")
    now = time.time()
    for facts in found:
        table.add_row(*map(cell, _cells(facts, now)))
    print_table(table)
    return 0


def _cells(facts: RunFacts, now: float) -> tuple[str, ...]:
    """Returns the texts of a row, in the order of the titles."""
    accuracy = "" if facts.eval_accuracy is None else f"{100 * facts.eval_accuracy:.2f} %"
    since = "" if facts.began is None else age(now - facts.began)
    tasks = str(facts.tasks or "")
    return (facts.run, facts.state, since, facts.backend, tasks, facts.step, accuracy)


def facts_of(folder: RunFolder) -> RunFacts:
    """Reads what the list shows of a run; a damaged one is named as such."""
    try:
        record = folder.record()
        is_followed = folder.launcher_pid() is not None
        is_elsewhere = folder.other_machine() is not None
    except HostError:
        return RunFacts(folder.run_id, "damaged", None, "", 0, "", None, None, str(folder.path))
    status, end = folder.status(), folder.end()
    if is_followed:
        state = "running" if status.get("tasks") else "starting"
    elif end is None:
        state = "elsewhere" if is_elsewhere else "not followed"
    elif end.cause is Cause.USER:
        state = "stopped"
    else:
        state = f"failed (exit code {end.exit_code})" if end.exit_code else "done"
    return RunFacts(
        folder.run_id,
        state,
        began_at(record),
        record["backend"],
        len(record["tasks"]),
        _step(status),
        _accuracy(record, status),
        None if end is None else end.reason,
        str(folder.path),
    )


def summary(folder: RunFolder) -> str:
    """Returns what a person wants of a run that is done: accuracy, duration, tasks, the report."""
    record, status = folder.record(), folder.status()
    accuracy, began, num_tasks = _accuracy(record, status), began_at(record), len(record["tasks"])
    words = [] if accuracy is None else [f"accuracy {100 * accuracy:.2f} %"]
    words.append(f"{num_tasks} task{'s' * (num_tasks > 1)}")
    if began is not None:
        words.append(duration(max(status.get("time", time.time()) - began, 0)))
    report = Path(os.path.expanduser(record.get("output") or "")) / "report.html"
    found = accuracy is not None and report.is_file()  # then the folder is known to be this run's
    return ", ".join(words) + (f"; report: {report}" if found else "")


def _step(status: Record) -> str:
    for row in status.get("tasks", []):
        if str(row.get("task")).partition("/")[0] in LEADS:
            return str(row.get("step", ""))
    return ""


def _accuracy(record: Mapping[str, Any], status: Record) -> Optional[float]:
    """Returns the accuracy in the run's result.json, unless the file may be of another run."""
    output, began = record.get("output"), began_at(record)
    if not isinstance(output, str) or "\0" in output or began is None:
        return None
    path = Path(os.path.expanduser(output)) / "result.json"
    if not path.is_absolute():
        return None  # relative to a home on another machine
    try:
        written = path.stat().st_mtime
        # Runs that share an output folder replace each other's results.
        ended = status.get("time") if status.get("exit_code") is not None else None
        latest = ended + _WRITTEN_SECS if isinstance(ended, (int, float)) else written
        found = json.loads(path.read_text("utf-8")) if began <= written <= latest else None
    except (OSError, ValueError, RecursionError):
        return None
    figures = found.get("figures") if isinstance(found, dict) else None
    accuracy = figures.get("eval_accuracy") if isinstance(figures, dict) else None
    if not isinstance(accuracy, (int, float)) or not 0 <= accuracy <= 1:
        return None
    return float(accuracy)
