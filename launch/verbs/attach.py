"""`attach`: shows a run until it ends."""

import argparse
import signal
import time

from launch.errors import HostError
from launch.record.run_folder import find, state_dir
from launch.screen.plain import plain
from launch.supervise.run_loop import ends_in_order
from launch.verbs.going_on import (
    ASK_SECS,
    LOOK_SECS,
    elsewhere,
    without_end,
    without_launcher,
)
from launch.verbs.listing import summary
from launch.verbs.up import show_end, ways_back
from launch.verbs.view import View

_TAIL = 20  # lines that came before


def attach(options: argparse.Namespace) -> int:
    """Shows a run until it ends, and returns its exit code; 130 if Ctrl-C ends this first.

    Other signals end it by SystemExit, once the terminal is as it was.

    Raises:
      HostError: the run's launcher has ended without saying how the run ended, or may run on
        another machine.
    """
    with ends_in_order():
        return _attach(options)


def _attach(options: argparse.Namespace) -> int:
    folder = find(state_dir(options.state_dir), options.run)
    of_tasks = folder.launcher_pid() is None or not folder.launcher_log.exists()
    live = False if options.lines else None
    view = View(folder, live=live, tail=_TAIL, of_tasks=of_tasks)
    view.note(f"run {folder.run_id}")
    view.note(f"run folder: {folder.path}")
    try:
        while True:
            launched = folder.launcher_pid() is not None
            running = launched or bool(without_launcher(folder))
            if running and not launched and not of_tasks:  # it follows the job no more
                view.show_new(final=True)
                view.close()
                of_tasks, view = True, View(folder, live=live, tail=0, of_tasks=True)
            view.show_new(final=not running)
            if not running:
                break
            time.sleep(LOOK_SECS if launched else ASK_SECS)
    except KeyboardInterrupt:
        view.close()
        ways_back(folder)
        return 128 + signal.SIGINT
    finally:
        view.close()
    outcome = folder.end()
    if outcome is None:
        why = elsewhere(folder) or without_end(folder)[1]
        raise HostError(f"run {folder.run_id}: {why}")
    if outcome.exit_code == 0:
        print(plain(summary(folder)))
    command = folder.record().get("command")
    show_end(outcome, command if isinstance(command, str) else None)
    return outcome.exit_code
