"""`up`: runs a job to its end, or with --detach to its start; and what it shows of a run.

The launcher is a process of its own, so that the run can go on without its terminal; `up` shows it,
passes signals on, and on a terminal asks at Ctrl-C what to do. If `up` is killed, the launcher ends
the run as if the terminal were closed.
"""

import argparse
import collections
import contextlib
import heapq
import os
import select
import shlex
import shutil
import signal
import sys
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path
from typing import Optional

from cifar10_program import LAUNCH, started_as
from cifar10_program.streams import format_duration
from launch.backends.base import Backend
from launch.backends.registry import BACKENDS
from launch.cluster.tasks import make_job
from launch.errors import HostError
from launch.record.output import Line, LogReader
from launch.record.result import Result
from launch.record.run_folder import RunFolder, state_dir
from launch.screen.display import ERROR, Display, say
from launch.screen.row import percent, saved_rows
from launch.supervise.run_loop import stop_signals
from launch.verbs import background
from launch.verbs.background import Background
from launch.verbs.check import plan, refuse_problems
from launch.verbs.flags import cluster_of

LOOK_SECS = 0.2  # between two looks at a run on this machine
_ROOM = 1 << 16  # bytes, as much as a large status
_QUESTION = "Ctrl-C: [l]eave running, [s]top (saves first), [c]ontinue?\na letter, then Enter: "
_LEAVE, _STOP, _CONTINUE = "l", "s", "c"


def up(options: argparse.Namespace) -> int:
    """Runs a job and returns its exit code; 0 if it goes on after --detach, 130 after Ctrl-C.

    Raises:
      LaunchError: the job could not be started.
    """
    if options.dry_run:
        options.json = options.shell = False
        return plan(options)
    job = make_job(cluster_of(options), options.arguments)
    backend = BACKENDS[job.cluster.backend]
    if backend.is_checked_first and not options.no_check:
        refuse_problems(job, backend)
    folder = RunFolder.create(state_dir(options.state_dir), job, backend.output_folder(job))
    say(f"run {folder.run_id}, its folder:", f"  {folder.path}")
    # Two machines cannot append to one file.
    log = folder.launcher_log if backend.job_writes_log else folder.output_log
    view = View(folder, is_start=options.detach)
    process = background.start(backend, job, folder, log)

    def is_enough() -> bool:
        if not options.detach or _has_started(folder, backend):
            return bool(options.detach)
        with contextlib.suppress(OSError):  # the folder was removed
            # What the run does cannot be seen on a full disk.
            return shutil.disk_usage(folder.path).free < _ROOM
        return False

    result = watch(process, view, is_enough)
    if result is None:
        ways_back(folder)
        if options.detach and not _has_started(folder, backend):
            raise HostError("whether the job has started cannot be seen; free the disk")
        return 0 if options.detach else 128 + signal.SIGINT
    say(*closing_lines(folder, result, view.errors))
    return result.exit_code


def _has_started(folder: RunFolder, backend: Backend) -> bool:
    """Returns whether every task runs; without agents, whether the job was submitted.

    A job of Slurm or Kubernetes may wait for hours until its tasks run.
    """
    tasks = folder.status().get("tasks", [])
    states = [str(row.get("state")).partition(" ")[0] for row in tasks]
    return bool(tasks) and (backend.survives or {*states} <= {"running", "done"})


class View:
    """Shows one run.

    Args:
      folder: the run's folder.
      tail: how many of the lines before now to show; None for all.
      is_start: whether to show the launcher's own lines alone, and no table.

    Attributes:
      errors: the errors of tasks that were shown. Each is shown once: a mistake of the user is one
        of all tasks.
    """

    def __init__(
        self, folder: RunFolder, *, tail: Optional[int] = None, is_start: bool = False
    ) -> None:
        self._folder, self._tail, self._is_start = folder, tail, is_start
        self._began = folder.record()["began"]
        self.errors = set[str]()
        self._logs = LogReader(folder.output_log), LogReader(folder.launcher_log)
        self._display: Optional[Display] = None

    def show_new(self, unlogged: Sequence[Line] = (), *, final: bool = False) -> None:
        """Shows what is new since the last call.

        Args:
          unlogged: lines that are not in the logs.
          final: whether nothing more will come.
        """
        if self._display is None:
            self._display = Display(live=False if self._is_start else None, began=self._began)
        new = (log.lines(final=final) for log in self._logs)
        lines: Iterable[Line] = heapq.merge(*new, unlogged, key=lambda line: line.time)
        if self._tail is not None:
            lines, self._tail = collections.deque(lines, self._tail), None
        for line in lines:
            if not line.task:
                self._display.note(line.text)
            elif not self._is_start and line.text not in self.errors:
                self._display.task_line(line.task, line.host, line.text)
                self.errors |= {line.text} if line.text.startswith(ERROR) else set()
        self._display.table(saved_rows(self._folder.status()))

    def close(self) -> None:
        """Ends what is shown, below which others may write; what comes later begins anew."""
        if self._display is not None:
            self._display.close()
            self._display = None


def watch(process: Background, view: View, is_enough: Callable[[], bool]) -> Optional[Result]:
    """Shows a run until it has ended or is left; returns how it ended, or None if it goes on.

    Args:
      process: the run's launcher.
      view: shows the run.
      is_enough: a function that returns whether to let the run go on without this process.

    Raises:
      LaunchError: the job could not be started, or its launcher has failed.
    """
    passed: list[int] = []

    def pass_on(signum: int) -> None:
        """Passes a signal on, also while a reader that stands still holds this process up."""
        if signum == signal.SIGINT and not passed and _can_ask():
            return
        passed.append(signum)
        process.signal(signum)

    with stop_signals(pass_on) as signals:
        is_left = False
        while not process.wait(LOOK_SECS) and not is_left:
            view.show_new(process.take_unlogged())
            is_left = is_enough()
            if signals and not passed and not is_left:
                view.close()
                answer = _ask(process, signals)
                signals.clear()
                is_left = answer == _LEAVE
                if answer == _STOP:
                    passed.append(signal.SIGINT)
                    process.signal(signal.SIGINT)
    view.show_new(process.take_unlogged(), final=not is_left)
    view.close()
    if is_left:
        process.leave()
    return None if is_left else process.result()


def _ask(process: Background, signals: Sequence[int]) -> str:
    """Asks the user at Ctrl-C; a second one means stop, and whatever else happens means none."""
    print(f"\n{_QUESTION}", end="", flush=True)
    while not process.wait(0) and len(signals) == 1:
        if select.select([0], [], [], LOOK_SECS)[0]:
            word = os.read(0, 1024).decode(errors="replace").strip().lower() or _CONTINUE
            if word[0] in (_LEAVE, _STOP, _CONTINUE):
                return word[0]
            print(_QUESTION, end="", flush=True)
    print(flush=True)
    return _STOP if signals[1:2] == [signal.SIGINT] else _CONTINUE


def _can_ask() -> bool:
    """Returns whether a user at a terminal can be asked: not in CI, a pipe or a script.

    A command of the terminal's shell leads a process group of its own. One of a script is in the
    script's group, which Ctrl-C may end, and a job in the background may not read.
    """
    if not (os.isatty(0) and sys.stdout.isatty()) or os.environ.get("CI"):
        return False
    with contextlib.suppress(OSError):  # the terminal is gone
        return os.tcgetpgrp(0) == os.getpid()
    return False


def closing_lines(folder: RunFolder, result: Result, errors: Collection[str] = ()) -> list[str]:
    """Returns what a person wants of a run that is over, and last why it ended.

    Of one that is done: accuracy, tasks, duration and the report. Of another one: what is known of
    its end, without the `errors` of tasks that were shown before.
    """
    record = folder.record()
    if result.exit_code == 0:
        accuracy, num_tasks = percent(folder.accuracy()), len(record["tasks"])
        secs = folder.status().get("time", time.time()) - record["began"]
        words = f"{num_tasks} task{'s' * (num_tasks > 1)}, {format_duration(secs)}"
        report = Path(os.path.expanduser(record.get("output") or "")) / "report.html"
        if not accuracy:  # then the folder may be another run's, too
            return [words, result.reason]
        lines = [f"accuracy {accuracy}, {words}", *[f"report: {report}"] * report.is_file()]
        return [*lines, result.reason]
    details = [line for line in result.details if line.removeprefix("  | ") not in errors]
    return [*details, f"exit code {result.exit_code}: {result.reason}"]


def ways_back(folder: RunFolder) -> None:
    """Prints how to see and end a run that goes on."""
    run = f"--run {folder.run_id} --state-dir {shlex.quote(str(folder.path.parent))}"
    say(
        "the run goes on without this terminal; to see it again:",
        f"  {started_as(LAUNCH)} attach {run}",
        "to end it (the master saves first):",
        f"  {started_as(LAUNCH)} stop {run}",
    )
