"""`list`, `status`, `stop` and `clean`: verbs for existing runs."""

import argparse
import contextlib
import json
import os
import signal
import time
from collections.abc import Mapping
from typing import Any

from cifar10_program.streams import complain
from launch.backends.registry import backend_named
from launch.cluster.model import LEADS
from launch.errors import HostError, LaunchError
from launch.record.outcome import Cause
from launch.record.run_folder import Record, RunFolder, all_runs, began_at, find, state_dir
from launch.screen.plain import plain_lines
from launch.screen.row import duration, job_line, saved_rows
from launch.screen.table import print_table, print_tasks
from launch.verbs.standing import accuracy_of, say, state_of

_LOOK_SECS = 0.2


def list_runs(options: argparse.Namespace) -> int:
    """Prints all runs, the newest first; contacts neither hosts nor schedulers."""
    parent = state_dir(options.state_dir)
    found = [facts_of(folder) for folder in reversed(all_runs(parent))]
    if options.json:
        print(json.dumps(found, indent=1))
    elif not found:
        print(f"no runs in {parent}")
    else:
        titles = ("run", "state", "age", "backend", "tasks", "step", "accuracy")
        print_table(titles, [_cells(facts) for facts in found], right="age tasks step accuracy")
    return 0


def _cells(facts: Mapping[str, Any]) -> tuple[str, ...]:
    accuracy, began = facts["eval_accuracy"], facts["began"]
    return (
        facts["run"],
        facts["state"],
        "" if began is None else duration(time.time() - began),
        facts["backend"],
        str(facts["tasks"] or ""),
        facts["step"],
        "" if accuracy is None else f"{100 * accuracy:.2f} %",
    )


def facts_of(folder: RunFolder) -> dict[str, Any]:
    """Reads what the list shows of a run.

    Its state is `starting`, `running`, `done`, `stopped`, `failed (exit code N)`, `not followed`:
    its launcher has ended before it, `elsewhere`: another machine may launch it, or `damaged`.
    """
    status, end = folder.status(), folder.end()
    record: Record = {"backend": "", "tasks": []}
    try:
        record, pid, elsewhere = folder.record(), folder.launcher_pid(), folder.other_machine()
    except HostError:
        pid, elsewhere = None, None
    if "run" not in record:
        state = "damaged"
    elif pid is not None:
        state = "running" if status.get("tasks") else "starting"
    elif end is None:
        state = "not followed" if elsewhere is None else "elsewhere"
    elif end.cause is Cause.USER:
        state = "stopped"
    else:
        state = f"failed (exit code {end.exit_code})" if end.exit_code else "done"
    rows = saved_rows(status.get("tasks", []))
    return {
        "run": folder.run_id,
        "state": state,
        "began": began_at(record),
        "backend": record["backend"],
        "tasks": len(record["tasks"]),
        "step": next((row.step for row in rows if row.task.partition("/")[0] in LEADS), ""),
        "eval_accuracy": accuracy_of(record, status),
        "reason": None if end is None else end.reason,
        "folder": str(folder.path),
    }


def status(options: argparse.Namespace) -> int:
    """Shows each task's status; returns 0 while the job runs, then its exit code (1 if unknown)."""
    folder = find(state_dir(options.state_dir), options.run)
    state, end = state_of(folder), folder.end()
    say(f"run {folder.run_id}: {state.words}", f"run folder: {folder.path}")
    rows = saved_rows(folder.status().get("tasks", []))
    if rows:
        print_tasks(rows)
        say(*filter(None, [job_line(rows)]))
    return 0 if state.is_followed or state.goes_on else 1 if end is None else end.exit_code


def stop(options: argparse.Namespace) -> int:
    """Ends a run as Ctrl-C in its launcher would, and waits for its end.

    Raises:
      HostError: the run is over, or its launcher has gone and no job goes on without it that could
        be stopped, or its launcher may run on another machine.
    """
    folder = find(state_dir(options.state_dir), options.run)
    pid = folder.launcher_pid()
    if pid is None:
        state, record = state_of(folder), folder.record()
        backend = backend_named(record["backend"])
        if not state.goes_on or not backend.is_lasting:
            is_over = " is over" if folder.end() else ""
            raise HostError(f"run {folder.run_id}{is_over}: {state.words}")
        backend.stop(record, now=options.now)
    else:
        with contextlib.suppress(ProcessLookupError):  # It has ended by now.
            for _ in range(2 if options.now else 1):
                os.kill(pid, signal.SIGTERM)
                time.sleep(0.3)  # Two pending signals would merge into one.
        while folder.launcher_pid() is not None:
            time.sleep(_LOOK_SECS)
    end = folder.end()
    say(f"run {folder.run_id}: {'ended' if end is None else end.reason}")
    return 0


def clean(options: argparse.Namespace) -> int:
    """Ends what is left of one run, or of all runs without a launcher that are not cleaned yet.

    A job that goes on without its launcher is ended only if `--run` names its run; so is one whose
    launcher may run on another machine, or whose cluster does not answer. Ctrl-C ends `clean` at
    once.

    Returns:
      1 if some runs could not be cleaned, else 0.

    Raises:
      LaunchError: the run that `--run` names is still running, or could not be cleaned.
    """
    parent = state_dir(options.state_dir)
    if options.run:
        folder = find(parent, options.run)
        if folder.launcher_pid() is not None:
            raise LaunchError(f"run {folder.run_id} is still running; end it with `stop`")
        _clean(folder)
        return 0
    exit_code = 0
    for folder in all_runs(parent):
        try:
            if (folder.path / "clean").exists() or folder.launcher_pid() is not None:
                continue
            state = state_of(folder)
            if state.goes_on or state.is_unknown or folder.other_machine() is not None:
                say(f"run {folder.run_id}: {state.words}")
                exit_code = HostError.exit_code if state.is_unknown else exit_code
            else:
                _clean(folder)
        except LaunchError as error:  # The other runs are still cleaned.
            complain(f"error: run {folder.run_id}: {plain_lines(str(error))}")
            exit_code = HostError.exit_code
    return exit_code


def _clean(folder: RunFolder) -> None:
    """Ends what is left of a run without a launcher, and marks it as cleaned.

    Raises:
      LaunchError: it could not be cleaned.
      SystemExit: a signal came before it was (128 + n).
    """
    record = folder.record()
    for line in backend_named(record["backend"]).clean(record) or ["nothing was left"]:
        say(f"run {folder.run_id}: {line}")
    mark = folder.path / "clean"
    try:
        mark.touch(mode=0o600)
    except OSError as error:
        raise LaunchError(f"cleaned, but {mark}: {error.strerror}") from None
