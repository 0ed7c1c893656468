"""What is known of a run, in words: whether it goes on, how it ended, how to see and to end it."""

import json
import os
import shlex
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, Optional

from cifar10_program import LAUNCH, command_line, started_as
from launch.backends.registry import backend_named
from launch.errors import HostError
from launch.record.outcome import Cause, Outcome
from launch.record.run_folder import Record, RunFolder, began_at
from launch.screen.display import Display
from launch.screen.row import duration

_WRITTEN_SECS = 60.0  # after the end of a run, by another machine's clock
# After these, the same command continues the training.
_STOPS = (Cause.USER, Cause.PLATFORM, Cause.PREEMPTED, Cause.TIME_LIMIT, Cause.HOST_LOST)
_HANGUP_CODE = 129  # The terminal is gone; some jobs go on without their launcher.


class State(NamedTuple):
    """Whether a run goes on.

    Attributes:
      words: what to say of it.
      is_followed: whether its launcher runs on this machine.
      goes_on: whether a job goes on in its cluster without its launcher.
      writes: whether new lines may come into the run's folder.
      is_unknown: whether the cluster did not answer, so that its job may go on.
    """

    words: str
    is_followed: bool = False
    goes_on: bool = False
    writes: bool = False
    is_unknown: bool = False


def state_of(folder: RunFolder) -> State:
    """Returns whether a run goes on; asks its cluster where only that may know."""
    if folder.launcher_pid() is not None:
        return State("running", is_followed=True, writes=True)
    end = folder.end()
    if end is not None:
        return State(f"exit code {end.exit_code}: {end.reason}" if end.exit_code else end.reason)
    record, elsewhere = folder.record(), folder.other_machine()
    backend = backend_named(record["backend"])
    rest = f"to end the remaining processes: clean --run {folder.run_id}"
    is_lasting, job, unknown = backend.is_lasting, "", ""
    if elsewhere is None or is_lasting:
        try:
            job = backend.going_on(record)
        except HostError as error:
            unknown = f"; whether its job goes on is not known: {error}"
    if job:
        owner = "its launcher" if elsewhere is None else "a launcher here"
        way_out = f"to end it: {'stop' if is_lasting else 'clean'} --run {folder.run_id}"
        words = f"continues without {owner}: {job}; {way_out}"
        return State(words, goes_on=True, writes=is_lasting)
    if elsewhere is not None:
        words = f"its launcher runs, or ran, on {elsewhere}: ask there; if it is gone, {rest}"
    else:
        words = f"its launcher has ended; {rest}{unknown}"
    return State(words, writes=bool(unknown) and is_lasting, is_unknown=bool(unknown))


def accuracy_of(record: Mapping[str, Any], status: Record) -> Optional[float]:
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
        accuracy = json.loads(path.read_text("utf-8"))["figures"]["eval_accuracy"]
    except (OSError, ValueError, RecursionError, LookupError, TypeError):
        return None
    is_sound = isinstance(accuracy, (int, float)) and 0 <= accuracy <= 1
    return float(accuracy) if is_sound and began <= written <= latest else None


def show_success(folder: RunFolder) -> None:
    """Prints what a person wants of a run that is done: accuracy, tasks, duration, the report."""
    record, status = folder.record(), folder.status()
    accuracy, began, num_tasks = accuracy_of(record, status), began_at(record), len(record["tasks"])
    words = [] if accuracy is None else [f"accuracy {100 * accuracy:.2f} %"]
    words.append(f"{num_tasks} task{'s' * (num_tasks > 1)}")
    if began is not None:
        words.append(duration(status.get("time", time.time()) - began))
    report = Path(os.path.expanduser(record.get("output") or "")) / "report.html"
    found = accuracy is not None and report.is_file()  # then the folder is known to be this run's
    say(", ".join(words), *([f"report: {report}"] if found else []))


def show_end(outcome: Outcome, command: Optional[str] = None) -> None:
    """Prints how a job ended, below the last table, if there was one; see `closing_lines`."""
    say(*closing_lines(outcome, command))


def closing_lines(outcome: Outcome, command: Optional[str] = None) -> list[str]:
    """Returns what is known of a job's end, the command that continues it, and the reason.

    Args:
      outcome: how the job ended.
      command: the command that started it; by default this process's, if that is `up`.
    """
    words = f"exit code {outcome.exit_code}: " if outcome.exit_code else ""
    if command is None and sys.argv[1:2] == ["up"]:
        command = own_command()
    is_left = outcome.exit_code in (0, _HANGUP_CODE)
    continues = command and not is_left and outcome.cause in _STOPS
    way_on = [f"to continue: {command}"] if continues else []
    return [*outcome.details, *way_on, f"{words}{outcome.reason}"]


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


def say(*lines: str) -> None:
    """Prints lines, without characters that control the terminal."""
    display = Display(live=False)
    for line in lines:
        display.note(line)
