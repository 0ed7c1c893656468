"""`status`, `stop` and `clean`: verbs for an existing run."""

import argparse
import contextlib
import os
import re
import shutil
import signal
import sys
import time

from cifar10_program import LAUNCH, started_as
from cifar10_program.streams import complain
from launch.backends.registry import backend_named
from launch.cluster.host_list import is_this_machine
from launch.errors import HostError, LaunchError
from launch.record import events
from launch.record.run_folder import DamagedError, Record, RunFolder, all_runs, find, state_dir
from launch.screen.plain import plain, plain_lines
from launch.screen.row import saved_rows
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
        if backend.is_lasting and backend.going_on(record):
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


_ALIVE_SECS = 60.0  # a launcher writes status.json each second, unless its disk is busy
_FOUND_BY_ID = ("local", "ssh", "docker", "slurm")  # backends that find a run by its id alone
_HOST = re.compile(
    r'"name":\s*"([^"\\]+)",\s*"user":\s*(?:null|"([^"\\]+)"),\s*"agent_python":\s*"([^"\\]+)"'
)


def clean_damaged(folder: RunFolder, error: DamagedError) -> None:
    """Ends what is left of the run, and removes its folder.

    Args:
      folder: the run's folder.
      error: what is damaged.

    Raises:
      LaunchError: it may be running.
      HostError: a host could not be reached, or only run.json could say where the run's job is.
    """
    if folder.end() is None and _age(folder) < _ALIVE_SECS:
        raise LaunchError(
            f"its run.json is damaged, and its launcher has written status.json {_age(folder):.0f} "
            f"s ago: end that process, or try again {_ALIVE_SECS:g} s after its end"
        )
    record = _rest_of(folder)
    backend = record["backend"]
    if backend not in _FOUND_BY_ID or not (record["hosts"] or backend == "slurm"):
        name = backend or "its backend, which is not known,"
        raise HostError(
            f"{error}; but only that file says where {name} runs its job, whose name or "
            f"LAUNCH_RUN_ID ends with {folder.run_id}: end it there, and remove {folder.path}"
        )
    for line in backend_named(backend).clean(record) or ["nothing was left"]:
        print(f"run {folder.run_id}: {plain(line)}")
    shutil.rmtree(folder.path)
    print(f"run {folder.run_id}: its run.json was damaged; its folder is removed")


def _age(folder: RunFolder) -> float:
    try:
        return max(0.0, time.time() - (folder.path / "status.json").stat().st_mtime)
    except OSError:
        return _ALIVE_SECS


def _rest_of(folder: RunFolder) -> Record:
    """Returns what can be known of run.json: parts of its text, and the hosts in other files."""
    text = (folder.path / "run.json").read_bytes().decode(errors="replace")
    backend = re.search(r'"backend":\s*"(\w+)"', text)
    engine = re.search(r'"engine":\s*"([^"\\]+)"', text)
    found = backend[1] if backend else None
    rows = saved_rows(folder.status().get("tasks", []))
    said = {*(row.host for row in rows), *(one.host for one in events.newest_first(folder))}
    said |= {"localhost"} if found == "local" else set()
    known = [*((name, "", "") for name in said if name), *_HOST.findall(text)]
    is_here = all(is_this_machine(name) for name, _, _ in known)
    python = sys.executable if is_here else "python3"
    hosts = {
        name: {"name": name, "user": user or None, "agent_python": given or python}
        for name, user, given in known
    }
    if hosts and found is None:
        found = "local" if is_here else "ssh"
    return {
        "run": folder.run_id,
        "backend": found,
        "hosts": list(hosts.values()),
        "engine": engine[1] if engine else "docker" if found == "docker" else None,
    }
