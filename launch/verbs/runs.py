"""Existing runs: `list`, `status`, `attach`, `logs`, `stop` and `clean`."""

import argparse
import collections
import contextlib
import os
import signal
import sys
import time
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple, Optional

from cifar10_program.streams import format_duration, log_error
from launch.backends.registry import BACKENDS
from launch.errors import HostError, LaunchError, NotHereError
from launch.record.output import Line, LogReader
from launch.record.result import ExitReason
from launch.record.run_folder import RunFolder, all_runs, find, state_dir
from launch.screen.display import print_json, say
from launch.screen.row import percent, plain, saved_rows
from launch.verbs import background
from launch.verbs.up import LOOK_SECS, View, closing_lines, ways_back

_ASK_SECS = 5.0  # between two questions to schedulers, which others use, too
_TAIL = 20  # lines that came before
GOES_ON, RUNNING = "goes on", "running"


class State(NamedTuple):
    """How a run stands.

    Attributes:
      name: RUNNING under its launcher here, GOES_ON in its cluster without its launcher, `on
        another host`: another machine may launch it, `launcher lost`: its launcher has ended
        before it, or how it ended.
      words: what to say of it.
      writes: whether new lines may come into the run's folder.
    """

    name: str
    words: str
    writes: bool = False


def state_of(folder: RunFolder, *, asks: bool = True) -> State:
    """Returns how a run stands; if `asks`, asks its cluster where only that may know.

    Raises:
      HostError: the cluster does not answer.
    """
    if folder.launcher_pid() is not None:
        return State(RUNNING, RUNNING, writes=True)
    end = folder.end()
    if end is not None:
        failed = f"exit code {end.exit_code}" if end.exit_code else ""
        name = f"failed ({failed})" if failed else "done"
        words = f"{failed}: {end.reason}" if failed else end.reason
        return State("stopped" if end.cause is ExitReason.USER else name, words)
    record, elsewhere = folder.record(), folder.other_machine()
    backend = BACKENDS[record["backend"]]
    job = unknown = ""
    if asks:
        try:
            job = found.state() if (found := backend.job_of(record)) else ""
        except NotHereError as error:
            unknown = f"; whether the job goes on is not known: {error}"
    if job:
        owner = "its launcher" if elsewhere is None else "a launcher here"
        words = f"continues without {owner}: {job}; to end it: stop --run {folder.run_id}"
        return State(GOES_ON, words, writes=backend.job_writes_log)
    rest = f"to end the remaining processes: clean --run {folder.run_id}{unknown}"
    if elsewhere is None:
        return State("launcher lost", f"its launcher has ended; {rest}")
    words = f"its launcher runs, or ran, on {elsewhere}: ask there; if it is gone, {rest}"
    return State("on another host", words)


def _find(options: argparse.Namespace) -> RunFolder:
    """Returns the run that is asked for; one that only its cluster knows gets a folder here.

    Raises:
      LaunchError: there is no such run.
    """
    parent = state_dir(options.state_dir)
    try:
        return find(parent, options.run)
    except LaunchError as error:
        for backend in BACKENDS.values() if options.run else ():
            try:
                record = backend.known(options.run)
            except NotHereError:
                continue
            except LaunchError as unknown:
                raise LaunchError(f"{error}; and whether it is in a cluster: {unknown}") from None
            if record is not None:
                return RunFolder.restore(parent, record)
        raise


def _rejoin(folder: RunFolder) -> Optional[background.Background]:
    """Starts a launcher for a job that goes on without one, unless it writes its log itself."""
    state, backend = state_of(folder), BACKENDS[folder.record()["backend"]]
    if state.name != GOES_ON or state.writes:
        return None
    process = background.start(backend, None, folder, folder.output_log)
    process.leave()
    while folder.launcher_pid() is None and not process.wait(LOOK_SECS):
        pass
    return process


def list_runs(options: argparse.Namespace) -> int:
    """Prints all runs, the newest first; contacts neither hosts nor schedulers."""
    from launch.screen.table import print_table

    parent = state_dir(options.state_dir)
    rows, found = list[tuple[str, ...]](), list[dict[str, Any]]()
    for folder in reversed(all_runs(parent)):
        try:
            facts, tasks = _facts(folder, asks=False), folder.record()["tasks"]
        except HostError:
            rows.append((folder.run_id, "", "damaged"))
            continue
        found.append(facts)
        age, accuracy = format_duration(time.time() - facts["began"]), percent(facts["accuracy"])
        steps = [row.step for row in saved_rows(facts) if row.is_chief]
        start = (folder.run_id, facts["name"] or "", facts["state"], age, facts["backend"])
        rows.append((*start, str(len(tasks)), "".join(steps[:1]), accuracy))
    if options.json:
        print_json(runs=found)
    elif rows:
        print_table(("run", "name", "state", "age", "backend", "tasks", "step", "accuracy"), rows)
    else:
        print(f"no runs in {parent}")
    return 0


def _facts(folder: RunFolder, *, asks: bool) -> dict[str, Any]:
    """Returns what --json says of a run."""
    record, status, state = folder.record(), folder.status(), state_of(folder, asks=asks)
    kept = {key: record.get(key) for key in ("run", "name", "backend", "began", "output")}
    ended = {key: status.get(key) for key in ("exit_code", "reason", "cause", "tasks")}
    more = {"folder": str(folder.path), "accuracy": folder.accuracy()}
    return {**kept, "state": state.name, "words": state.words, **ended, **more}


def status(options: argparse.Namespace) -> int:
    """Shows each task's status; returns 0 while the job runs, then its exit code (1 if unknown)."""
    from launch.screen.table import print_tasks

    folder = _find(options)
    state, end = state_of(folder), folder.end()
    if options.json:
        print_json(**_facts(folder, asks=True))
    else:
        say(f"run {folder.run_id}: {state.words}", f"run folder: {folder.path}")
        if rows := saved_rows(folder.status()):
            print_tasks(rows)
    return 0 if state.name in (RUNNING, GOES_ON) else 1 if end is None else end.exit_code


def _looks(folder: RunFolder) -> Iterator[bool]:
    """Yields at each look at a run whether it is the last one; waits between two."""
    while True:
        state = state_of(folder)
        yield not state.writes
        if not state.writes:
            return
        time.sleep(LOOK_SECS if state.name == RUNNING else _ASK_SECS)


def attach(options: argparse.Namespace) -> int:
    """Shows a run until it ends, and returns its exit code; 130 if Ctrl-C ends this first.

    Raises:
      HostError: the run's launcher has ended without saying how the run ended, or may run on
        another machine.
    """
    folder = _find(options)
    view, launcher = View(folder, tail=_TAIL), _rejoin(folder)
    say(f"run {folder.run_id}, its folder:", f"  {folder.path}")
    try:
        with contextlib.closing(view):
            for is_last in _looks(folder):
                view.show_new(final=is_last)
    except KeyboardInterrupt:
        ways_back(folder)
        return 128 + signal.SIGINT
    result = folder.end()
    if result is None and launcher is not None and launcher.wait(LOOK_SECS):
        result = launcher.result()
    if result is None:
        raise HostError(f"run {folder.run_id}: {state_of(folder).words}")
    say(*closing_lines(folder, result, view.errors))
    return result.exit_code


def logs(options: argparse.Namespace) -> int:
    """Prints the lines of tasks, by default of all; with -f, follows them until the run ends.

    Raises:
      LaunchError: there is no such run or task.
    """
    folder = _find(options)
    tasks, log = _chosen(folder, options.tasks), LogReader(folder.output_log)

    def show(tail: Optional[int], *, final: bool) -> None:
        lines: Iterable[Line] = (line for line in log.lines(final=final) if line.task in tasks)
        for line in lines if tail is None else collections.deque(lines, tail):
            prefix = f"[{line.task} {line.host}] " if len(tasks) > 1 else ""
            sys.stdout.write(f"{plain(prefix + line.text)}\n")
        sys.stdout.flush()

    show(options.tail, final=not options.follow)
    if options.follow:
        _rejoin(folder)
        for is_last in _looks(folder):
            show(None, final=is_last)
        if folder.end() is None:
            log_error(f"note: launcher lost: {plain(state_of(folder).words)}")
    return 0


def _chosen(folder: RunFolder, asked: "list[str]") -> set[str]:
    """Returns the names of the tasks to print.

    Args:
      folder: the run's folder.
      asked: names of tasks, or task types for all tasks of a type; empty for all tasks.

    Raises:
      LaunchError: the run has no such task.
    """
    known = [entry["task"] for entry in folder.record()["tasks"]]
    for word in asked:
        if word not in known and not any(name.startswith(f"{word}/") for name in known):
            raise LaunchError(
                f"run {folder.run_id} has no task {word}; it has {', '.join(map(plain, known))}"
            )
    return {name for name in known if not asked or {name, name.partition("/")[0]} & set(asked)}


def stop(options: argparse.Namespace) -> int:
    """Ends a run as Ctrl-C in its launcher would, and waits for its end; one that is over stays.

    Raises:
      HostError: its launcher has gone and no job goes on without it that could be stopped, or its
        launcher may run on another machine.
    """
    folder = _find(options)
    pid, record = folder.launcher_pid(), folder.record()
    if pid is None:
        state, job = state_of(folder), BACKENDS[record["backend"]].job_of(record)
        if folder.end() is not None:
            say(f"run {folder.run_id} has ended before: {state.words}")
            return 0
        if state.name != GOES_ON or job is None:
            raise HostError(f"run {folder.run_id}: {state.words}")
        job.end(now=options.now)
    else:
        with contextlib.suppress(ProcessLookupError):  # It has ended by now.
            for _ in range(2 if options.now else 1):
                os.kill(pid, signal.SIGTERM)
                time.sleep(0.3)  # Two pending signals would merge into one.
        while folder.launcher_pid() is not None:
            time.sleep(LOOK_SECS)
    end = folder.end()
    say(f"run {folder.run_id}: {'ended' if end is None else end.reason}")
    return 0


def clean(options: argparse.Namespace) -> int:
    """Ends what is left of a run, by default of the newest one; Ctrl-C ends `clean` at once.

    A job that goes on without its launcher is ended only if `--run` names its run; so is one whose
    launcher may run on another machine. With --forget, nothing is ended, and the run leaves the
    list.

    Raises:
      LaunchError: the run is still running, or could not be cleaned.
      SystemExit: a signal came before it was (128 + n).
    """
    folder = _find(options)
    if folder.launcher_pid() is not None:
        raise LaunchError(f"run {folder.run_id} is still running; end it with `stop`")
    if options.run is None:
        state = state_of(folder)
        if state.name == GOES_ON or folder.other_machine() is not None:
            say(f"run {folder.run_id}: {state.words}")
            return 0
    if options.forget:
        folder.remove()
        say(f"run {folder.run_id}: forgotten; {folder.path} is removed")
        return 0
    record = folder.record()
    try:
        lines = BACKENDS[record["backend"]].clean(record)
    except NotHereError as error:
        raise HostError(f"{error}; --forget takes the run off the list") from None
    for line in lines or ["nothing was left"]:
        say(f"run {folder.run_id}: {line}")
    return 0
