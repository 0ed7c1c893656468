"""--seeds: trains once for each seed, in one process after the other, and compares the figures.

Each run is as one with --seed in an output folder of its own. So a seed that has been interrupted
continues from its checkpoint, and one that is finished is not trained again.
"""

import functools
import os
import posixpath
import shlex
import signal
import statistics
import sys
import time
from collections.abc import Sequence
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
_Statistics = dict[str, Optional[float]]  # by the names of figures
_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_POLL_SECS = 0.1


def train_each(config: TrainConfig, train: Callable[[TrainConfig], int]) -> int:
    """Trains with each seed, prints a table of the results, and writes seeds.json.

    Call this before TensorFlow is loaded, since each training runs in a fork of this process.

    Args:
      config: the settings, with `seeds`.
      train: function that trains one configuration and returns the exit code.

    Returns:
      The exit code: that of the first training that did not succeed, or 0.

    Raises:
      Stopped: a signal arrived between two trainings.
    """
    runs = {seed: _config_of(config, seed) for seed in config.seed_list}
    with _Child() as child:
        for number, (seed, one) in enumerate(runs.items(), 1):
            say(f"seed {seed}, {number} of {len(runs)}: {one.output_place}")
            code = child.run(functools.partial(_train_unless_timed_out, one, train))
            if code:
                return _unfinished(f"{number - 1} of {len(runs)} seeds are", seed, code)
        _compare(config, runs)
    return 0


def _train_unless_timed_out(config: TrainConfig, train: Callable[[TrainConfig], int]) -> int:
    """Trains, and returns the exit code; a run that has had its --max-minutes gets no more.

    Without --seeds, such a run would go on. Here, all seeds are to have the same time.
    """
    if config.max_minutes is not None and _has_had_its_minutes(config):
        say(f"already trained for --max-minutes {config.max_minutes:g}: {config.output_place}")
        return 0
    return train(config)


def _has_had_its_minutes(config: TrainConfig) -> bool:
    if not config.verbose:
        silence_native_log()
    import tensorflow.compat.v1 as tf  # Imported here, in the fork.

    from cifar10.host.files import read_json
    from cifar10.output import checkpoints

    path = posixpath.join(config.output_place, "result.json")
    if not tf.io.gfile.exists(path):
        return False
    try:
        result = read_json(path)
        found = (result["status"], result["configuration"]["max_minutes"])
        step = result["figures"]["global_step"]
        is_last = bool(step == checkpoints.latest_step(config.output_place))
    except (DamagedError, KeyError, TypeError):  # Something is damaged, which training mends.
        return False
    return is_last and found == ("stopped by --max-minutes", config.max_minutes)


def _unfinished(finished: str, seed: int, code: int) -> int:
    """Prints how to go on after a training that did not succeed, and returns the exit code."""
    why = f"signal {-code}" if code < 0 else f"exit code {code}"
    complain(
        f"{finished} finished; seed {seed} ended with {why}; to go on: {shlex.join(command_line())}"
    )
    return 128 - code if code < 0 else code


def _config_of(config: TrainConfig, seed: int) -> TrainConfig:
    """Returns the settings of the run with one of the seeds."""
    log_dir = config.log_dir and posixpath.join(config.log_dir, f"seed-{seed}")
    return config.with_settings(
        seeds=None,
        seed=seed,
        output_dir=posixpath.join(config.output_dir, f"seed-{seed}"),
        log_dir=log_dir,
    )


class _Child:
    """Runs work in forks of this process, one at a time, and passes signals on to the fork.

    After Ctrl-C, both processes get the signal from the terminal; training takes two signals within
    a second for one. A signal that this process ignores stays ignored in both. If this process ends
    first, the kernel sends the fork SIGTERM, so that it saves and ends.
    """

    def __init__(self) -> None:
        self._signals: Optional[list[int]] = None  # that have come while a fork works

    def __enter__(self) -> "_Child":
        self._before = {
            signum: signal.signal(signum, self._note)
            for signum in _SIGNALS
            if signal.getsignal(signum) is not signal.SIG_IGN
        }
        return self

    def __exit__(self, *exc_info: object) -> None:
        for signum, handler in self._before.items():
            signal.signal(signum, handler)

    def run(self, work: Callable[[], int]) -> int:
        """Returns the exit code of the work, or the negative number of the signal that ended it.

        Raises:
          Stopped: a signal has come, but the work has succeeded all the same.
        """
        sys.stdout.flush()
        sys.stderr.flush()
        signals: list[int] = []
        self._signals = signals
        try:
            # Held back until the fork knows that signals are for itself.
            before, parent = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS), os.getpid()
            try:
                pid = os.fork()
                if not pid:
                    self._signals = None
            finally:
                signal.pthread_sigmask(signal.SIG_SETMASK, before)
            if not pid:
                end_with(parent)
                leave(work())
            code = _wait(pid, signals)
        finally:
            self._signals = None
        if signals and not code:
            raise Stopped(signals[0])
        return code

    def _note(self, signum: int, frame: Any) -> None:
        if self._signals is None:
            raise Stopped(signum)
        self._signals.append(signum)


def _wait(pid: int, signals: list[int]) -> int:
    """Sends a fork the signals that come into a list, and returns its exit code at its end.

    It looks again and again, since a signal that comes right before a call of waitpid does not end
    it.
    """
    num_sent = 0
    while True:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        for signum in signals[num_sent:]:
            os.kill(pid, signum)
            num_sent += 1
        time.sleep(_POLL_SECS)


def _compare(config: TrainConfig, runs: dict[int, TrainConfig]) -> None:
    """Prints the table of all runs, which have ended, and writes seeds.json."""
    if not config.verbose:
        silence_native_log()
    from cifar10.host.files import read_json, write_json  # They load TensorFlow.
    from cifar10.run.tf_errors import clear_errors

    rows = []
    for seed, one in runs.items():
        result = read_json(posixpath.join(one.output_place, "result.json"))
        place = {"seed": seed, "output_dir": one.output_place, "status": result["status"]}
        figures = {name: result["figures"][name] for name in ("global_step", *_COLUMNS.values())}
        rows.append({**place, **figures})
    mean, deviation = statistics_of(rows)
    path = posixpath.join(config.output_place, FILE_NAME)
    with clear_errors(config):
        write_json(path, {"runs": rows, "mean": mean, "standard_deviation": deviation})
    say(f"{table(rows, mean, deviation)}\nseeds: {path}")


def statistics_of(rows: Sequence[dict[str, Any]]) -> tuple[_Statistics, _Statistics]:
    """Returns the means and the sample standard deviations of the figures of all seeds.

    A figure that a seed lacks has none, and a single seed has no deviation.
    """
    values = {name: [row[name] for row in rows] for name in _COLUMNS.values()}
    mean = {name: _if_all(statistics.fmean, found, 1) for name, found in values.items()}
    deviation = {name: _if_all(statistics.stdev, found, 2) for name, found in values.items()}
    return mean, deviation


def _if_all(
    function: Callable[[Sequence[float]], float], values: Sequence[Optional[float]], at_least: int
) -> Optional[float]:
    """Returns a statistic of values; None if one of them is None, or if there are too few."""
    known = [value for value in values if value is not None]
    return rounded(function(known)) if len(known) == len(values) >= at_least else None


def table(
    rows: Sequence[dict[str, Any]],
    mean: _Statistics,
    deviation: _Statistics,
) -> str:
    """Returns the table of all seeds, without columns that no run has a figure for.

    Args:
      rows: the figures of each seed.
      mean: their means.
      deviation: their sample standard deviations.
    """
    columns = [name for name, key in _COLUMNS.items() if any(row[key] is not None for row in rows)]
    lines = [("seed", *columns)]
    for label, figures in (
        *((str(row["seed"]), row) for row in rows),
        ("mean", mean),
        ("deviation", deviation),
    ):
        lines.append((label, *(_cell(name, figures[_COLUMNS[name]]) for name in columns)))
    return "\n".join(
        f"{label:<10}" + "".join(f"{cell:>12}" for cell in cells) for label, *cells in lines
    )


def _cell(name: str, value: Optional[float]) -> str:
    if value is None:
        return "-"
    return f"{value:.1f}" if name == "seconds" else f"{value:.4f}"
