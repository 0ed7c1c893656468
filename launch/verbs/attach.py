"""`attach`: shows a run until it ends."""

import argparse
import signal
import time

from launch.errors import HostError
from launch.record.run_folder import find, state_dir
from launch.verbs.going_on import ASK_SECS, LOOK_SECS, without_launcher
from launch.verbs.up import show_end, ways_back
from launch.verbs.view import View

_TAIL = 20  # lines that came before


def attach(options: argparse.Namespace) -> int:
    """Shows a run until it ends, and returns its exit code; 130 if Ctrl-C ends this first.

    Raises:
      HostError: the run's launcher has ended without saying how the run ended.
    """
    folder = find(state_dir(options.state_dir), options.run)
    of_tasks = folder.launcher_pid() is None or not folder.launcher_log.exists()
    view = View(folder, live=False if options.lines else None, tail=_TAIL, of_tasks=of_tasks)
    view.note(f"run {folder.run_id}")
    view.note(f"run folder: {folder.path}")
    try:
        while True:
            launched = folder.launcher_pid() is not None
            running = launched or bool(without_launcher(folder))
            view.show_new(final=not running)
            if not running:
                break
            time.sleep(LOOK_SECS if launched else ASK_SECS)
    except KeyboardInterrupt:
        view.close()
        ways_back(folder, options.state_dir)
        return 128 + signal.SIGINT
    finally:
        view.end()
    outcome = folder.end()
    if outcome is None:
        raise HostError(
            f"run {folder.run_id}: its launcher has ended; to end the remaining processes: "
            f"clean --run {folder.run_id}"
        )
    show_end(outcome)
    return outcome.exit_code
