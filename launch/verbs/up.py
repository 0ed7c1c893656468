"""`up`: runs a job to its end, or with --detach to its start."""

import argparse
import dataclasses
import shlex
import signal
import sys
from functools import partial
from typing import Optional

from cifar10_program import LAUNCH, command_line, started_as
from launch.backends.base import Backend
from launch.backends.registry import backend_named
from launch.cluster.model import Cluster
from launch.cluster.tasks import Job, make_job
from launch.errors import LaunchError
from launch.record.outcome import Cause, Outcome
from launch.record.run_folder import RunFolder, state_dir
from launch.screen.display import Display
from launch.supervise import background
from launch.supervise.run_loop import ends_in_order
from launch.verbs import foreground
from launch.verbs.listing import summary


def up(cluster: Cluster, options: argparse.Namespace) -> int:
    """Runs a job and returns its exit code; 0 if it goes on after --detach, 130 after Ctrl-C.

    Raises:
      LaunchError: the job could not be started.
    """
    if options.restarts is not None:
        cluster = dataclasses.replace(cluster, restarts=options.restarts)
    job = make_job(cluster, options.arguments)
    backend = backend_named(cluster.backend)
    if backend.is_checked_first and not options.no_check:
        from launch.verbs.check import refuse_problems

        refuse_problems(job, backend)
    output = backend.output_folder(job)
    folder = RunFolder.create(state_dir(options.state_dir), job, output)
    folder.add(command=own_command())
    live = False if options.lines else None

    def run(display: Display) -> Outcome:
        return _run(backend, job, folder, display)

    _say(f"run {folder.run_id}", f"run folder: {folder.path}")
    if options.detach:
        is_agents = backend.transport is not None
        has_started = partial(_has_started, folder, is_agents=is_agents)
        try:
            outcome = foreground.follow_start(background.start(run, folder), folder, has_started)
        except foreground.NotSeen:
            ways_back(folder)
            raise
    elif foreground.can_ask():
        outcome = foreground.follow(background.start(run, folder), folder, live=live)
    else:
        outcome = _run_here(run, live=live)
    if outcome is None:
        ways_back(folder)
        return 0 if options.detach else 128 + signal.SIGINT
    if outcome.exit_code == 0:
        _say(summary(folder))
    show_end(outcome)
    return outcome.exit_code


def _run_here(run: background.Run, *, live: Optional[bool]) -> Optional[Outcome]:
    with ends_in_order():
        display = Display(live=live)
        try:
            return run(display)
        finally:
            display.close()


def _run(backend: Backend, job: Job, folder: RunFolder, display: Display) -> Outcome:
    """Runs a job, and writes into its folder how it ended."""
    try:
        outcome = backend.run(job, folder, display)
    except LaunchError as error:
        if backend.transport is not None:  # without agents, something may have been submitted
            folder.write_end(Outcome(error.exit_code, str(error), cause=Cause.LAUNCHER))
        raise
    # A job without agents may go on; one with agents may have been stopped before its first task.
    if backend.transport is not None or folder.end() is not None:
        folder.write_end(outcome)
    return outcome


def show_end(outcome: Outcome, command: Optional[str] = None) -> None:
    """Prints how a job ended, below the last table, if there was one; see `closing_lines`."""
    _say(*closing_lines(outcome, command))


def _say(*lines: str) -> None:
    display = Display(live=False)
    for line in lines:
        display.note(line)
    display.close()


def _has_started(folder: RunFolder, *, is_agents: bool) -> bool:
    """Returns whether every task runs; without agents, whether the job was submitted.

    A job of Slurm or Kubernetes may wait for hours until its tasks run.
    """
    tasks = folder.status().get("tasks", [])
    if not is_agents:
        return bool(tasks)
    return bool(tasks) and all(
        str(row.get("state")).partition(" ")[0] in ("running", "done") for row in tasks
    )


def ways_back(folder: RunFolder) -> None:
    """Prints how to see and end a run that goes on."""
    words = folder.flags()
    _say(
        "the run goes on without this terminal:",
        f"  {started_as(LAUNCH)} attach {words}   shows it again",
        f"  {started_as(LAUNCH)} stop {words}   ends it; the master saves first",
    )


# After these, the same command continues the training.
_CONTINUABLE = (
    Cause.USER,
    Cause.PLATFORM,
    Cause.PREEMPTED,
    Cause.TIME_LIMIT,
    Cause.HOST_LOST,
)
_HANGUP_CODE = 129  # The terminal is gone; some jobs go on without their launcher.


def closing_lines(outcome: Outcome, command: Optional[str] = None) -> list[str]:
    """Returns what is known of a job's end, the command that continues it, and the reason.

    Args:
      outcome: how the job ended.
      command: the command that started it; by default this process's, if that is `up`.
    """
    words = f"exit code {outcome.exit_code}: " if outcome.exit_code else ""
    reason = f"{words}{outcome.reason}"
    if command is None and sys.argv[1:2] == ["up"]:
        command = own_command()
    is_left = outcome.exit_code in (0, _HANGUP_CODE)
    continues = command and not is_left and outcome.cause in _CONTINUABLE
    way_on = [f"to continue: {command}"] if continues else []
    return [*outcome.details, *way_on, reason]


def own_command() -> str:
    """Returns the command of this process, as its user typed it, except for quotes."""
    words = command_line()
    if words[0] == "python":
        words[0] = getattr(sys, "orig_argv", words)[0]  # from Python 3.10 on
    return shlex.join(words)
