"""`up`: runs a job to its end, or with --detach to its start.

On a terminal and with --detach, the launcher is a process of its own, so that the run can go on
without the terminal; `up` shows it, passes signals on, and asks at Ctrl-C what to do. If `up` is
killed, the launcher ends the run as if the terminal were closed.
"""

import argparse
import dataclasses
import os
import select
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Optional

from launch.backends.base import Backend
from launch.backends.registry import backend_named
from launch.cluster.tasks import Job, make_job
from launch.errors import HostError, LaunchError
from launch.record.outcome import Cause, Outcome
from launch.record.output import writer
from launch.record.run_folder import RunFolder, state_dir
from launch.screen.display import Display
from launch.supervise import background
from launch.supervise.background import Background
from launch.supervise.run_loop import ends_in_order, stop_signals
from launch.verbs.described_cluster import cluster_of
from launch.verbs.follow import LOOK_SECS, View
from launch.verbs.standing import own_command, say, show_end, show_success, ways_back

_READER_SECS = 2.0  # for a reader that stands still, at the end
_QUESTION = "Ctrl-C: [l]eave running, [s]top (saves first), [c]ontinue?\na letter, then Enter: "
_LEAVE, _STOP, _CONTINUE = ("l", "leave"), ("s", "stop"), ("c", "continue", "")


def up(options: argparse.Namespace) -> int:
    """Runs a job and returns its exit code; 0 if it goes on after --detach, 130 after Ctrl-C.

    Raises:
      LaunchError: the job could not be started.
    """
    cluster = cluster_of(options)
    if options.restarts is not None:
        cluster = dataclasses.replace(cluster, restarts=options.restarts)
    job = make_job(cluster, options.arguments)
    backend = backend_named(cluster.backend)
    if backend.is_checked_first and not options.no_check:
        from launch.verbs.check import refuse_problems

        refuse_problems(job, backend)
    folder = RunFolder.create(state_dir(options.state_dir), job, backend.output_folder(job))
    folder.add(command=own_command())

    def run(display: Display) -> Outcome:
        return _run(backend, job, folder, display)

    say(f"run {folder.run_id}", f"run folder: {folder.path}")
    # A lasting job writes output.log itself; two machines cannot append to one file.
    log = folder.launcher_log if backend.is_lasting else folder.output_log
    live = False if options.lines or options.detach else None
    view = View(folder, live=live, hides_tasks=options.detach)
    if options.detach:
        is_agents = backend.transport is not None
        outcome = follow(
            background.start(run, folder, log),
            folder,
            view,
            lambda: view.is_blind or _has_started(folder, is_agents=is_agents),
        )
    elif _can_ask():
        outcome = follow(background.start(run, folder, log), folder, view)
    else:
        outcome = _run_here(run, log, view)
    if outcome is None:
        ways_back(folder)
        if options.detach and view.is_blind:
            raise HostError("whether the job has started cannot be seen; free the disk")
        return 0 if options.detach else 128 + signal.SIGINT
    if outcome.exit_code == 0:
        show_success(folder)
    show_end(outcome)
    return outcome.exit_code


def _run(backend: Backend, job: Job, folder: RunFolder, display: Display) -> Outcome:
    """Runs a job, and writes into its folder how it ended."""
    try:
        outcome = backend.run(job, folder, display)
    except LaunchError as error:
        if backend.transport is not None:  # without agents, something may have been submitted
            folder.write_end(Outcome(error.exit_code, str(error), cause=Cause.LAUNCHER))
        raise
    # A job without agents that has no end yet may go on.
    if backend.transport is not None or folder.end() is not None:
        folder.write_end(outcome)
    return outcome


def _run_here(run: background.Run, log: Path, view: View) -> Outcome:
    """Runs a job in this process; a thread shows it, so that the job waits for no reader."""
    is_over = threading.Event()

    def show() -> None:
        while not is_over.wait(LOOK_SECS):
            view.show_new()
        view.show_new(final=True)
        view.close()

    thread = threading.Thread(target=show, name="view", daemon=True)
    thread.start()
    try:
        with ends_in_order():
            outcome = run(Display(writer(log), live=False))
    finally:
        is_over.set()
        thread.join(_READER_SECS)
    if thread.is_alive():  # It holds the stream, so that nothing can be shown or flushed any more.
        os._exit(outcome.exit_code)
    return outcome


def _has_started(folder: RunFolder, *, is_agents: bool) -> bool:
    """Returns whether every task runs; without agents, whether the job was submitted.

    A job of Slurm or Kubernetes may wait for hours until its tasks run.
    """
    tasks = folder.status().get("tasks", [])
    states = [str(row.get("state")).partition(" ")[0] for row in tasks]
    return bool(tasks) and (not is_agents or {*states} <= {"running", "done"})


def follow(
    process: Background,
    folder: RunFolder,
    view: View,
    is_enough: Callable[[], bool] = lambda: False,
) -> Optional[Outcome]:
    """Shows a run until it has ended or is left; returns how it ended, or None if it goes on.

    Args:
      process: the run's launcher.
      folder: the run's folder.
      view: shows the run.
      is_enough: a function that returns whether to let the run go on without this process.

    Raises:
      LaunchError: the job could not be started, or its launcher has failed.
    """
    passed: set[int] = set()
    with stop_signals() as signals:
        num_heeded, is_left = 0, False
        while not process.wait(LOOK_SECS) and not is_left:
            view.show_new()
            is_left = is_enough()
            while num_heeded < len(signals) and not is_left:
                signum = signals[num_heeded]
                num_heeded += 1
                answer: tuple[str, ...] = _STOP
                if signum == signal.SIGINT and not passed and _can_ask() and _is_typed():
                    view.close()
                    answer = _ask(process, signals, num_heeded)
                    num_heeded += signals[num_heeded : num_heeded + 1] == [signum]
                is_left = answer is _LEAVE
                # The shell and the kernel may both tell of the end of a terminal.
                if answer is _STOP and not (signum == signal.SIGHUP and signum in passed):
                    process.signal(signum)
                    passed.add(signum)
    view.show_new(final=not is_left)
    view.close()
    if is_left:
        process.leave()
    return None if is_left else process.outcome()


def _ask(process: Background, signals: Sequence[int], num_heeded: int) -> tuple[str, ...]:
    """Asks the user at Ctrl-C; a second one means stop, and whatever else happens means none."""
    _print(f"\n{_QUESTION}")
    while not process.wait(0) and len(signals) == num_heeded:
        if select.select([0], [], [], LOOK_SECS)[0]:
            word = os.read(0, 1024).decode(errors="replace").strip().lower()
            for answer in (_LEAVE, _STOP, _CONTINUE):
                if word in answer:
                    return answer
            _print(_QUESTION)
    _print("\n")
    return _STOP if signals[num_heeded : num_heeded + 1] == [signal.SIGINT] else _CONTINUE


def _can_ask() -> bool:
    """Returns whether a user at a terminal can be asked: not in CI, nor in a pipe."""
    return os.isatty(0) and sys.stdout.isatty() and not os.environ.get("CI")


def _is_typed() -> bool:
    """Returns whether this is a command of the terminal's shell, and in the foreground.

    Such a command leads a process group of its own. One of a script is in the script's group, which
    Ctrl-C may end, and a job in the background may not read from the terminal.
    """
    try:
        return os.tcgetpgrp(0) == os.getpid()
    except OSError:
        return False


def _print(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()
