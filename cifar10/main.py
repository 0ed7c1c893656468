"""The command: parses the flags, finds the cluster, runs the mode and returns the exit code.

TensorFlow is imported only after the flags and the cluster have been checked.

Exit codes: 0 success; 1 training failed; 2 a mistake of the user, reported in one line; 128 + n
ended by signal n.
"""

import os
import signal
import sys
import time
import warnings
from collections.abc import Sequence
from typing import Callable, Optional

from cifar10.cluster import resolve
from cifar10.cluster.spec import EVALUATOR, MASTER, WORKER, Cluster, check_own_address
from cifar10.cluster.tf_config import TF_CONFIG
from cifar10.config import flags
from cifar10.config.train_config import TrainConfig
from cifar10.errors import ConfigError, Stopped, TrainingError, UserError
from cifar10.host import garbage
from cifar10.host.console import one_line, say
from cifar10.host.signals import STAY_SECS, StopRequest
from cifar10.run import seeds
from cifar10.tf_internals import silence_native_log
from cifar10_program.streams import complain, open_streams

_Work = Callable[[StopRequest, float], None]  # takes the time when the process started, too


def main(argv: Optional[Sequence[str]] = None, config_type: type[TrainConfig] = TrainConfig) -> int:
    """Runs the command and returns its exit code.

    Args:
      argv: the arguments after the program's name; None: those of this process.
      config_type: the class of the settings; a subclass of TrainConfig may have more.
    """
    started = time.monotonic()
    open_streams()
    words = sys.argv[1:] if argv is None else argv
    return _exit_code(lambda: _main(words, config_type, started))


def _exit_code(work: Callable[[], int]) -> int:
    """Returns the exit code of `work`; prints the line of an error that it raises."""
    try:
        return work()
    except UserError as error:
        complain(f"error: {one_line(str(error))}")
        return 2
    except TrainingError as error:
        complain(f"training failed: {one_line(str(error))}")
        return 1
    except Stopped as error:
        complain(str(error))
        return 128 + error.signum


def _main(argv: Sequence[str], config_type: type[TrainConfig], started: float) -> int:
    try:
        config = resolve.with_model_dir(flags.parse(argv, config_type), os.environ)
    except BrokenPipeError:  # The reader of what a flag prints, such as `head`, has ended.
        return 0
    if config.seeds is None:
        return _run_once(config, started)
    _refuse_seeds_in_cluster(config)
    return seeds.train_each(config, _train_one_of_seeds)


def _train_one_of_seeds(config: TrainConfig) -> int:
    """Trains in a process of its own, in which signals are blocked until they are handled."""
    started = time.monotonic()
    open_streams()
    return _exit_code(
        lambda: 0 if seeds.has_had_its_minutes(config) else _run_once(config, started)
    )


def _run_once(config: TrainConfig, started: float) -> int:
    # Only training has something to save.
    stop = StopRequest(None if config.mode == "train_and_evaluate" else STAY_SECS)
    stop.install()
    signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGTERM, signal.SIGINT))
    cluster = _find_cluster(config)
    with garbage.modules_stay():
        _quieten(config.verbose)
    _run(config, cluster, stop, started)
    stop.check()
    return 0


def _refuse_seeds_in_cluster(config: TrainConfig) -> None:
    cluster = resolve.resolve(config, os.environ)
    if cluster is not None and not cluster.is_single_process:
        raise ConfigError(
            f"--seeds trains one process after the other, but this is {cluster.label} of a "
            "cluster; start the cluster once for each seed, with --seed "
            f"{config.seed_list[0]} --output-dir {config.output_dir}/seed-{config.seed_list[0]}"
        )


def _find_cluster(config: TrainConfig) -> Optional[Cluster]:
    cluster = resolve.resolve(config, os.environ)
    if cluster is not None:
        check_own_address(cluster, config.check_address)
    for note in resolve.notes(config, cluster):
        say(note)
    # Estimator would read TF_CONFIG, too, and it rejects some forms that platforms write.
    os.environ.pop(TF_CONFIG, None)
    return cluster


def _run(
    config: TrainConfig, cluster: Optional[Cluster], stop: StopRequest, started: float
) -> None:
    # Loading TensorFlow takes seconds; --help and a misspelt flag must not wait for it.
    with garbage.modules_stay():
        from cifar10.run.tf_errors import clear_errors

        work = _load(config, cluster)
    # A disk may fail wherever a file is written.
    with clear_errors(config):
        work(stop, started)


def _load(config: TrainConfig, cluster: Optional[Cluster]) -> _Work:
    """Loads the modules that this process needs; returns what it does from its start to its end."""
    task = None if cluster is None or cluster.is_single_process else cluster
    if task is not None and task.task_type == EVALUATOR:
        from cifar10.run.evaluator import evaluate_until_end

        return lambda stop, _: evaluate_until_end(config, task, stop)
    if task is not None and task.task_type == WORKER and config.replication == "between-graph":
        from cifar10.train import train_as_worker

        return lambda stop, _: train_as_worker(config, task, stop)
    if task is not None and task.task_type != MASTER:
        from cifar10.run.parameter_server import serve

        return lambda stop, _: serve(config, task, stop)
    if config.mode == "train_and_evaluate":
        from cifar10.train import train_and_evaluate

        return lambda stop, started: train_and_evaluate(config, stop, started, task)
    if config.mode == "evaluate":
        from cifar10.run.modes.evaluate import evaluate

        return lambda stop, _: evaluate(config, stop)
    if config.mode == "predict":
        from cifar10.run.modes.predict import predict

        return lambda stop, _: predict(config, stop)
    from cifar10.run.modes.export import export_mode

    return lambda *_: export_mode(config)


def _quieten(verbose: bool) -> None:
    """Silences TensorFlow's log and Python's warnings unless `verbose`; errors still raise."""
    if not verbose:
        silence_native_log()
        warnings.filterwarnings("ignore")
    import tensorflow.compat.v1 as tf

    # By default, TensorFlow shows warnings but not Estimator's INFO lines.
    tf.logging.set_verbosity(tf.logging.INFO if verbose else tf.logging.FATAL)
