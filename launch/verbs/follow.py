"""Shows runs from their folders: what `up`, `attach` and `logs` print; all follow one log."""

import argparse
import collections
import heapq
import os
import shlex
import signal
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Optional

from cifar10_program import LAUNCH, command_line, started_as
from cifar10_program.streams import complain
from launch.errors import HostError, LaunchError
from launch.record.outcome import Cause, Outcome
from launch.record.output import Follower, Line, utc
from launch.record.run_folder import RunFolder, find, state_dir
from launch.screen.display import Display, say
from launch.screen.row import duration, plain, saved_rows
from launch.verbs.runs import RUNNING, UNKNOWN, state_of

LOOK_SECS = 0.2  # between two looks at a run on this machine
_ASK_SECS = 5.0  # for schedulers, which others use, too
_TRIES = 12  # questions without an answer, after which a job is not followed any more
_TABLE_SECS = 1.0  # as often as the launcher writes the table
_TAIL = 20  # lines that came before
# After these, the same command continues the training.
_STOPS = (Cause.USER, Cause.PLATFORM, Cause.PREEMPTED, Cause.TIME_LIMIT, Cause.HOST_LOST)
_HANGUP_CODE = 129  # The terminal is gone; some jobs go on without their launcher.


class View:
    """Shows one run.

    Args:
      folder: the run's folder.
      tail: how many of the lines before now to show; None for all.
      is_start: whether to show the launcher's own lines alone, and no table.
    """

    def __init__(
        self,
        folder: RunFolder,
        *,
        tail: Optional[int] = None,
        is_start: bool = False,
    ) -> None:
        self._folder, self._tail, self._is_start = folder, tail, is_start
        self._began = folder.record()["began"]
        self._logs = Follower(folder.output_log), Follower(folder.launcher_log)
        self._next_table = 0.0
        self._display: Optional[Display] = None

    def show_new(self, *, final: bool = False) -> None:
        """Shows what is new since the last call; `final` if nothing more will come."""
        if self._display is None:
            self._display, self._next_table = (
                Display(live=False if self._is_start else None, began=self._began),
                0.0,
            )
        new = (log.lines(final=final) for log in self._logs)
        lines: Iterable[Line] = heapq.merge(*new, key=lambda line: line.time)
        if self._tail is not None:
            lines, self._tail = collections.deque(lines, self._tail), None
        for line in lines:
            if not line.task:
                self._display.note(line.text)
            elif not self._is_start:
                self._display.task_line(line.task, line.host, line.text)
        if final or time.monotonic() >= self._next_table:
            self._next_table = time.monotonic() + _TABLE_SECS
            self._display.table(saved_rows(self._folder.status().get("tasks", [])))

    def close(self) -> None:
        """Ends what is shown, below which others may write; what comes later begins anew."""
        if self._display is not None:
            self._display.close()
            self._display = None


def _looks(folder: RunFolder) -> Iterator[bool]:
    """Yields at each look at a run whether it is the last one; waits between two."""
    is_running, tries = True, _TRIES
    while is_running:
        state = state_of(folder)
        tries = tries - 1 if state.name == UNKNOWN else _TRIES
        is_running = state.writes and tries > 0
        yield not is_running
        if is_running:
            time.sleep(LOOK_SECS if state.name == RUNNING else _ASK_SECS)


def attach(options: argparse.Namespace) -> int:
    """Shows a run until it ends, and returns its exit code; 130 if Ctrl-C ends this first.

    Raises:
      HostError: the run's launcher has ended without saying how the run ended, or may run on
        another machine.
    """
    folder = find(state_dir(options.state_dir), options.run)
    view = View(folder, tail=_TAIL)
    say(f"run {folder.run_id}", f"run folder: {folder.path}")
    try:
        for is_last in _looks(folder):
            view.show_new(final=is_last)
    except KeyboardInterrupt:
        view.close()
        ways_back(folder)
        return 128 + signal.SIGINT
    finally:
        view.close()
    outcome = folder.end()
    if outcome is None:
        raise HostError(f"run {folder.run_id}: {state_of(folder).words}")
    say(*closing_lines(folder, outcome))
    return outcome.exit_code


def logs(options: argparse.Namespace) -> int:
    """Prints the lines of tasks, by default of all; with -f, follows them until the run ends.

    Raises:
      LaunchError: there is no such run or task, or no such line yet.
    """
    folder = find(state_dir(options.state_dir), options.run)
    tasks = _chosen(folder, options.tasks)
    log, since = Follower(folder.output_log), utc(options.since)

    def new_lines(*, final: bool) -> list[Line]:
        lines = log.lines(final=final)
        return [line for line in lines if line.task in tasks and line.time >= since]

    def show(lines: Iterable[Line]) -> None:
        for line in lines:
            prefix = f"[{line.task} {line.host}] " if len(tasks) > 1 else ""
            sys.stdout.write(f"{plain(prefix + line.text)}\n")
        sys.stdout.flush()

    old = new_lines(final=not options.follow)
    show(old if options.tail is None else collections.deque(old, options.tail))
    if not old and not options.follow:
        raise LaunchError(f"no such line in {folder.output_log}; to wait for one: logs -f")
    if options.follow:
        for is_last in _looks(folder):
            show(new_lines(final=is_last))
        if folder.end() is None:
            complain(f"note: not followed: {plain(state_of(folder).words)}")
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


def closing_lines(folder: RunFolder, outcome: Outcome) -> list[str]:
    """Returns what a person wants of a run that is over, and last why it ended.

    Of one that is done: accuracy, tasks, duration and the report. Of another one: what is known of
    its end, and the command that continues it, if one does.
    """
    record = folder.record()
    if outcome.exit_code == 0:
        accuracy, num_tasks = folder.accuracy(), len(record["tasks"])
        words = [] if accuracy is None else [f"accuracy {100 * accuracy:.2f} %"]
        words.append(f"{num_tasks} task{'s' * (num_tasks > 1)}")
        words.append(duration(folder.status().get("time", time.time()) - record["began"]))
        report = Path(os.path.expanduser(record.get("output") or "")) / "report.html"
        found = (
            accuracy is not None and report.is_file()
        )  # then the folder is known to be this run's
        return [", ".join(words), *([f"report: {report}"] if found else []), outcome.reason]
    continues = outcome.exit_code != _HANGUP_CODE and outcome.cause in _STOPS
    command = record.get("command") if continues else None
    way_on = [f"to continue: {command}"] if command else []
    return [*outcome.details, *way_on, f"exit code {outcome.exit_code}: {outcome.reason}"]


def own_command() -> str:
    """Returns the command of this process, as its user typed it, except for quotes."""
    words = command_line()
    if words[0] == "python":
        words[0] = getattr(sys, "orig_argv", words)[0]  # from Python 3.10 on
    return shlex.join(words)


def ways_back(folder: RunFolder) -> None:
    """Prints how to see and end a run that goes on."""
    words = folder.flags()
    say(
        "the run goes on without this terminal; to see it again:",
        f"  {started_as(LAUNCH)} attach {words}",
        "to end it (the master saves first):",
        f"  {started_as(LAUNCH)} stop {words}",
    )
