"""--seeds: trains once for each seed, in one process after the other, and compares the figures.

Each run is as one with --seed in an output folder of its own. So a seed that has been interrupted
continues from its checkpoint, and one that is finished is not trained again.
"""

import os
import pickle
import posixpath
import shlex
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from multiprocessing.spawn import get_preparation_data
from typing import Any, Callable, Optional

from cifar10.config.train_config import TrainConfig
from cifar10.errors import DamagedError, Stopped
from cifar10.host.console import say
from cifar10.host.process_end import end_with, leave
from cifar10.output.digits import rounded
from cifar10.tf_internals import silence_native_log
from cifar10_program import command_line
from cifar10_program.streams import complain

FILE_NAME = "seeds.json"
# Column of the table -> the figure in result.json.
_COLUMNS = {
    "validation": "best_validation_accuracy",
    "eval": "eval_accuracy",
    "augmented": "eval_accuracy_augmented",
    "loss": "eval_loss",
    "seconds": "training_seconds",
}
_Figures = dict[str, Any]
_Train = Callable[[TrainConfig], int]
_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_POLL_SECS = 0.1
# The script that was started may have registered a model, or have settings of its own.
_CHILD = """
import multiprocessing.spawn, pickle, sys
multiprocessing.spawn.prepare(pickle.load(sys.stdin.buffer))
work, *arguments = pickle.load(sys.stdin.buffer)
work(*arguments)
"""


def train_each(config: TrainConfig, train: _Train) -> int:
    """Trains with each seed, prints a table of the results, and writes seeds.json.

    Args:
      config: the settings, with `seeds`.
      train: function of a module that trains one configuration and returns the exit code; it
        unblocks SIGTERM and SIGINT when it handles them.

    Returns:
      The exit code: that of the first training that did not succeed, or 0.

    Raises:
      Stopped: a signal arrived, but the training at hand has succeeded all the same.
    """
    if not config.verbose:
        silence_native_log()
    signals: list[int] = []
    for signum in _SIGNALS:
        if signal.getsignal(signum) is not signal.SIG_IGN:
            signal.signal(signum, lambda number, _: signals.append(number))
    runs = {seed: _config_of(config, seed) for seed in config.seed_list}
    for number, (seed, one) in enumerate(runs.items(), 1):
        say(f"seed {seed}, {number} of {len(runs)}: {one.output_place}")
        code = _run(one, train, signals)
        if code:
            why = f"signal {-code}" if code < 0 else f"exit code {code}"
            complain(
                f"{number - 1} of {len(runs)} seeds are finished; seed {seed} ended with {why}; to "
                f"go on: {shlex.join(command_line())}"
            )
            return 128 - code if code < 0 else code
        if signals:
            raise Stopped(signals[0])
    _compare(config, runs)
    if signals:
        raise Stopped(signals[0])
    return 0


def _run(config: TrainConfig, train: _Train, signals: Sequence[int]) -> int:
    """Trains in a process of its own; returns its exit code, or less 0 the signal that ended it.

    Signals that come are passed on. After Ctrl-C, both processes get the signal from the terminal;
    training takes two signals within a second for one.
    """
    with tempfile.TemporaryFile() as work:
        here = get_preparation_data("seed")
        del here["authkey"]  # It may not be pickled.
        pickle.dump(here, work)
        pickle.dump((_train_in_child, os.getpid(), config, train), work)
        work.seek(0)
        # Held back until the new process handles them.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
        process = subprocess.Popen([sys.executable, "-c", _CHILD], stdin=work)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    passed_on = 0
    # It looks again and again, since a signal right before a wait does not end that.
    while process.poll() is None:
        time.sleep(_POLL_SECS)
        for signum in signals[passed_on:]:
            process.send_signal(signum)
            passed_on += 1
    return process.returncode


def _train_in_child(parent: int, config: TrainConfig, train: _Train) -> None:
    end_with(parent)
    leave(train(config))


def has_had_its_minutes(config: TrainConfig) -> bool:
    """Returns whether a run has ended by this --max-minutes, and says so.

    Without --seeds, such a run would go on. Here, all seeds are to have the same time.
    """
    if config.max_minutes is None:
        return False
    from cifar10.host import files  # It loads TensorFlow.

    path = posixpath.join(config.output_place, "result.json")
    if not files.exists(path):
        return False
    try:
        result = files.read_json(path)
        found = (result["status"], result["configuration"]["max_minutes"])
    except (DamagedError, KeyError, TypeError):  # Training mends it.
        return False
    if found != ("stopped by --max-minutes", config.max_minutes):
        return False
    say(f"already trained for --max-minutes {config.max_minutes:g}: {config.output_place}")
    return True


def _config_of(config: TrainConfig, seed: int) -> TrainConfig:
    """Returns the settings of the run with one of the seeds."""
    log_dir = config.log_dir and posixpath.join(config.log_dir, f"seed-{seed}")
    return config.with_settings(
        seeds=None,
        seed=seed,
        output_dir=posixpath.join(config.output_dir, f"seed-{seed}"),
        log_dir=log_dir,
    )


def _compare(config: TrainConfig, runs: dict[int, TrainConfig]) -> None:
    """Prints the table of all runs, which have ended, and writes seeds.json."""
    from cifar10.host.files import read_json, write_json  # They load TensorFlow.
    from cifar10.run.tf_errors import clear_errors

    rows = []
    for seed, one in runs.items():
        result = read_json(posixpath.join(one.output_place, "result.json"))
        place = {"seed": seed, "output_dir": one.output_place, "status": result["status"]}
        figures = {name: result["figures"][name] for name in ("global_step", *_COLUMNS.values())}
        rows.append({**place, **figures})
    # Of one seed, there is no deviation.
    mean, deviation = statistic(statistics.fmean, rows), statistic(statistics.stdev, rows, 2)
    path = posixpath.join(config.output_place, FILE_NAME)
    with clear_errors(config):
        write_json(path, {"runs": rows, "mean": mean, "standard_deviation": deviation})
    say(f"{table(rows, mean, deviation)}\nseeds: {path}")


def statistic(
    function: Callable[[Sequence[float]], float], rows: Sequence[_Figures], at_least: int = 1
) -> dict[str, Optional[float]]:
    """Returns a statistic of each figure; None if a row lacks it, or if there are too few rows."""
    values = {name: [row[name] for row in rows] for name in _COLUMNS.values()}
    return {
        name: None if None in found or len(found) < at_least else rounded(function(found))
        for name, found in values.items()
    }


def table(rows: Sequence[_Figures], mean: _Figures, deviation: _Figures) -> str:
    """Returns the table of all seeds, without columns that no run has a figure for."""
    columns = [name for name, key in _COLUMNS.items() if any(row[key] is not None for row in rows)]
    lines = [("seed", columns)]
    labelled = [(str(row["seed"]), row) for row in rows]
    for label, figures in (*labelled, ("mean", mean), ("deviation", deviation)):
        lines.append((label, [_cell(name, figures[_COLUMNS[name]]) for name in columns]))
    return "\n".join(
        f"{label:<10}" + "".join(f"{cell:>12}" for cell in cells) for label, cells in lines
    )


def _cell(name: str, value: Optional[float]) -> str:
    if value is None:
        return "-"
    return f"{value:.1f}" if name == "seconds" else f"{value:.4f}"
