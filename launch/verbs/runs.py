"""`status`, `stop` and `clean`: verbs for an existing run."""

import argparse
import contextlib
import os
import signal
import time

from cifar10_program import LAUNCH, started_as
from cifar10_program.streams import complain
from launch.backends.base import Lasting
from launch.backends.registry import backend_named
from launch.errors import HostError, LaunchError
from launch.record import events
from launch.record.run_folder import DamagedError, RunFolder, all_runs, find, state_dir
from launch.screen.plain import plain, plain_lines
from launch.verbs.damaged import clean_damaged
from launch.verbs.going_on import (
    LOOK_SECS,
    elsewhere,
    left_in_its_cluster,
    without_end,
    without_launcher,
)


def status(options: argparse.Namespace) -> int:
    """Shows each task's status; returns 0 while the job runs, then its exit code (1 if unknown)."""
    from launch.screen.job_line import job_line
    from launch.screen.row import saved_rows
    from launch.screen.table import render, stdout_console

    folder = find(state_dir(options.state_dir), options.run)
    found = folder.status()
    running = folder.launcher_pid() is not None
    end = folder.end()
    lasting = "" if running else without_launcher(folder)
    if running:
        words = "running"
    elif lasting:
        owner = "its launcher" if folder.other_machine() is None else "a launcher here"
        words = f"continues without {owner}: {lasting}"
    elif where := elsewhere(folder):
        words = where
    elif end is None:
        lasting, words = without_end(folder)
    else:
        words = f"exit code {end.exit_code}: {end.reason}" if end.exit_code else end.reason
    print(f"run {folder.run_id}: {plain(words)}")
    print(f"run folder: {plain(str(folder.path))}")
    if found.get("tasks"):
        console = stdout_console()
        rows = saved_rows(found["tasks"])
        console.print(render(rows, console.width))
        if job_line(rows):
            print(plain(job_line(rows)))
    last = events.last_with_reason(folder)
    if last is not None:
        print(f"last reason: {plain(last.time)} {plain(last.words())}")
    return 0 if running or lasting else 1 if end is None else end.exit_code


def stop(options: argparse.Namespace) -> int:
    """Ends a run as Ctrl-C in its launcher would, and waits for its end.

    Raises:
      HostError: the run is over, or its launcher has gone and no job goes on without it, or its
        launcher may run on another machine.
    """
    folder = find(state_dir(options.state_dir), options.run)
    pid = folder.launcher_pid()
    if pid is None:
        record = folder.record()
        backend = backend_named(record["backend"])
        if isinstance(backend, Lasting) and backend.going_on(record):
            backend.stop(record, now=options.now)
            print(f"run {folder.run_id}: {_end_of(folder)}")
            return 0
        if where := elsewhere(folder):
            raise HostError(f"run {folder.run_id}: {where}")
        state = f"is over ({_end_of(folder)})" if folder.end() else "has no launcher here any more"
        raise HostError(
            f"run {folder.run_id} {state}; to end what it may have left: "
            f"{started_as(LAUNCH)} clean --run {folder.run_id}"
        )
    with contextlib.suppress(ProcessLookupError):  # It has ended by now.
        for _ in range(2 if options.now else 1):
            os.kill(pid, signal.SIGTERM)
            time.sleep(0.3)  # Two pending signals would merge into one.
    while folder.launcher_pid() is not None:
        time.sleep(LOOK_SECS)
    print(f"run {folder.run_id}: {_end_of(folder)}")
    return 0


def _end_of(folder: RunFolder) -> str:
    end = folder.end()
    return "ended" if end is None else plain(end.reason)


def clean(options: argparse.Namespace) -> int:
    """Ends what is left of one run, or of all runs without a launcher that are not cleaned yet.

    A job that goes on without its launcher is ended only if `--run` names its run; so is one whose
    launcher may run on another machine. Ctrl-C ends `clean` at once.

    Raises:
      LaunchError: the launcher of the run that `--run` names is still running.
      HostError: some runs could not be cleaned.
    """
    parent = state_dir(options.state_dir)
    if options.run:
        runs = [find(parent, options.run)]
        with contextlib.suppress(DamagedError):
            if runs[0].launcher_pid() is not None:
                raise LaunchError(f"run {runs[0].run_id} is still running; end it with `stop`")
    else:
        runs = [folder for folder in all_runs(parent) if not (folder.path / "clean").exists()]
    failures: list[str] = []
    try:
        for folder in runs:
            try:
                try:
                    _clean(folder, is_named=bool(options.run))
                except DamagedError as error:
                    if not options.run:
                        raise
                    clean_damaged(folder, error)
            except LaunchError as error:  # The other runs are still cleaned.
                failures.append(f"run {folder.run_id}: {error}")
    except (KeyboardInterrupt, SystemExit):
        for failure in failures:
            complain(f"error: {plain_lines(failure)}")
        raise
    if failures:
        raise HostError("\n".join(failures))
    return 0


def _clean(folder: RunFolder, *, is_named: bool) -> None:
    """Ends what is left of a run without a launcher, and marks it as cleaned.

    Args:
      folder: the run's folder.
      is_named: whether the user has named the run.

    Raises:
      LaunchError: it could not be cleaned.
      SystemExit: a signal came before it was (128 + n).
    """
    if folder.launcher_pid() is not None:
        return
    why_not = "" if is_named else elsewhere(folder) or left_in_its_cluster(folder)
    if why_not:
        print(f"run {folder.run_id}: {plain(why_not)}")
        return
    record = folder.record()
    for line in backend_named(record["backend"]).clean(record) or ["nothing was left"]:
        print(f"run {folder.run_id}: {plain(line)}")
    mark = folder.path / "clean"
    try:
        mark.touch(mode=0o600)
    except OSError as error:
        raise LaunchError(f"cleaned, but {mark}: {error.strerror}") from None
